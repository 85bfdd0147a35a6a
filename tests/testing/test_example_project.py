"""The example project, run as its README says, with confluent-kafka and aiokafka from PyPI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

PROJECT = Path(__file__).resolve().parents[2] / "examples" / "pytest-project"
CLIENTS = ("confluent-kafka", "aiokafka", "pytest-asyncio")


@pytest.mark.peer
@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_the_tests_of_the_example_project_pass(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, options: tuple[str, ...]
) -> None:
    site = tmp_path_factory.getbasetemp() / "example-clients"
    if not site.exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(site), *CLIENTS]
        installed = subprocess.run(install, capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False)
        if installed.returncode:
            pytest.skip(f"the clients cannot be installed here: {installed.stderr.strip()[-300:]}")
    shutil.copytree(PROJECT, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=tmp_path / "project",
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
        check=False,
    )
    assert (done.returncode, "6 passed" in done.stdout) == (0, True), done.stdout
