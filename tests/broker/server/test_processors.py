"""Tests of the processors that a process may use: affinity and quotas of control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gregor.broker.server.processors import processor_count

AFFINITY = 8


@pytest.fixture(autouse=True)
def eight_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(AFFINITY)), raising=False)


def count(directory: Path, own: str, files: dict[str, str]) -> float:
    for name, text in files.items():
        path = directory / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (directory / "own").write_text(own)
    return processor_count(directory / "cgroup", directory / "own")


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {}, AFFINITY),
        ("0::/\n", {"cpu.max": "max 100000\n"}, AFFINITY),
        ("0::/\n", {"cpu.max": "100000 100000\n"}, 1.0),
        ("0::/docker/abc\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/a/b\n", {"a/cpu.max": "50000 100000\n", "a/b/cpu.max": "max 100000\n"}, 0.5),
        ("0::/a/b\n", {"a/c/cpu.max": "50000 100000\n"}, AFFINITY),
        ("0::/../..\n", {"cpu.max": "200000 100000\n"}, 2.0),
        ("0::/\n", {"cpu.max": "garbage\n"}, AFFINITY),
        ("0::/\n", {"cpu.max": "100000 0\n"}, AFFINITY),
        ("0::/\n", {"cpu.max": "9900000 100000\n"}, AFFINITY),
        (
            "5:memory:/x\n4:cpu,cpuacct:/x\n",
            {"cpu,cpuacct/x/cpu.cfs_quota_us": "25000\n", "cpu,cpuacct/x/cpu.cfs_period_us": "100000\n"},
            0.25,
        ),
        ("4:cpu:/x\n", {"cpu/x/cpu.cfs_quota_us": "-1\n", "cpu/x/cpu.cfs_period_us": "100000\n"}, AFFINITY),
    ],
)
def test_the_smallest_quota_counts(tmp_path: Path, own: str, files: dict[str, str], expected: float) -> None:
    assert count(tmp_path, own, files) == expected


def test_without_control_groups_the_affinity_counts(tmp_path: Path) -> None:
    assert processor_count(tmp_path / "cgroup", tmp_path / "own") == AFFINITY
