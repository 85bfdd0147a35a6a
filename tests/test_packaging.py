"""Builds: wheels whose tags are right about compiled modules, and modules that are compiled once."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXT_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
SOURCES = {".py", ".pxd", ".c", ".h"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a copy of the files that git tracks, without built files."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (tmp_path / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / "checkout" / name)
    return tmp_path / "checkout"


def run_python(checkout: Path, *arguments: str, **environment: str) -> str:
    """Run this Python in `checkout` and return its output, stderr included."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=checkout,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def build_wheel(checkout: Path, **environment: str) -> tuple[Path, str]:
    """Build a wheel and return it with the output of the build."""
    shutil.rmtree(checkout / "dist", ignore_errors=True)
    options = ["--no-build-isolation", "--no-deps", "--verbose", "--wheel-dir", "dist"]
    written = run_python(checkout, "-m", "pip", "wheel", *options, ".", **environment)
    (wheel,) = (checkout / "dist").glob("*.whl")
    return wheel, written


@pytest.fixture
def sources_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], set[str]]:
    """Return a function that names the files from which setup.py compiles a module of this checkout."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("GREGOR_PURE_PYTHON", "1")
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    found = runpy.run_path("setup.py")["sources_of"]
    return lambda module: {str(path) for path in found(module)}


def compiled_modules(wheel: Path) -> list[str]:
    with ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if name.endswith(EXT_SUFFIX)]


def compiled_sources() -> list[Path]:
    rooms = (
        "broker/api",
        "broker/replicas/fetching",
        "broker/replicas/replication",
        "broker/server",
        "client/producer",
        "protocol",
        "protocol/records",
        "storage/log",
    )
    return [path for room in rooms for path in (ROOT / room).glob("*_cy.py")]


def modules_without_suffix() -> list[Path]:
    return [source.relative_to(ROOT).with_suffix("") for source in compiled_sources()]


def is_compiled(source: Path) -> bool:
    compiled = source.with_suffix(EXT_SUFFIX)
    types = source.with_suffix(".pxd")
    return compiled.exists() and compiled.stat().st_mtime >= max(source.stat().st_mtime, types.stat().st_mtime)


@pytest.mark.parametrize(
    ("environment", "reason"),
    [({"CC": "/nonexistent/cc"}, "no C compiler"), ({"GREGOR_PURE_PYTHON": "1"}, "GREGOR_PURE_PYTHON is set")],
)
def test_a_wheel_without_compiled_modules_is_tagged_pure(
    checkout: Path, environment: dict[str, str], reason: str
) -> None:
    wheel, written = build_wheel(checkout, **environment)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert compiled_modules(wheel) == []
    assert reason in written


def test_a_wheel_has_the_data_files_of_each_package(checkout: Path) -> None:
    packages = tomllib.loads((checkout / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = [Path(*package.split(".")[1:]) for package in packages]
    data_files = {
        f"gregor/{folder / path.name}"
        for folder in folders[1:]
        for path in (checkout / folder).iterdir()
        if path.is_file() and path.suffix not in SOURCES
    }
    wheel, _ = build_wheel(checkout, GREGOR_PURE_PYTHON="1")
    assert "gregor/broker/config/ignored_keys.json" in data_files
    with ZipFile(wheel) as archive:
        assert data_files <= set(archive.namelist())


def test_a_wheel_with_compiled_modules_is_tagged_binary_and_compiles_only_what_changed(checkout: Path) -> None:
    sources = compiled_sources()
    stale = [source.name for source in sources if not is_compiled(source)]
    if stale:
        pytest.skip(f"no compiled {', '.join(stale)} of today: `pip install -e .` with a C compiler builds them")
    kept = ROOT / "build" / "compiled"
    shutil.copytree(kept, checkout / "build" / "compiled")
    wheel, written = build_wheel(checkout)
    assert not wheel.name.endswith("-none-any.whl")
    assert len(compiled_modules(wheel)) == len(sources) + 1
    assert "are to be compiled" not in written, "the digests of the same source differ"

    changed = checkout / "protocol" / "records" / "murmur2_cy.py"
    changed.write_text(changed.read_text() + "ADDED = 1\n")
    wheel, written = build_wheel(checkout)
    assert "compiled 1 of 1: gregor.protocol.records.murmur2_cy" in written
    assert len(compiled_modules(wheel)) == len(sources) + 1


@pytest.mark.parametrize(
    ("changed", "compiled_again", "kept"),
    [
        ("protocol/records/walk_cy.py", "protocol.records.walk_cy", "protocol.records.plain_batch_cy"),
        ("protocol/records/walk_cy.pxd", "protocol.records.plain_batch_cy", "protocol.records.kernel_cy"),
        ("protocol/records/varint.pxd", "broker.api.plain_lane_cy", "protocol.plain_produce_cy"),
        ("protocol/records/lz_matches.h", "broker.server.bulk_answer_cy", "protocol.records.kernel_cy"),
        ("protocol/records/crc_simd.c", "protocol.records.crc_cy", "protocol.records.kernel_cy"),
        ("protocol/records/crc_simd.h", "protocol.records.kernel_cy", "protocol.records.murmur2_cy"),
        ("storage/log/file_reads.pxd", "broker.server.bulk_chunk_cy", "storage.log.appendable_log_cy"),
    ],
)
def test_a_change_compiles_the_modules_that_contain_the_file_and_no_others(
    sources_of: Callable[[str], set[str]], changed: str, compiled_again: str, kept: str
) -> None:
    assert changed in sources_of(f"gregor.{compiled_again}")
    assert changed not in sources_of(f"gregor.{kept}")


def test_setup_understands_each_cimport_and_each_included_file(sources_of: Callable[[str], set[str]]) -> None:
    named = set().union(*(sources_of(".".join(("gregor", *path.parts))) for path in modules_without_suffix()))
    for room in {path.parent for path in compiled_sources()}:
        assert {str(path.relative_to(ROOT)) for path in room.iterdir() if path.suffix in {".pxd", ".h"}} <= named
    for path in map(ROOT.joinpath, named):
        for line in re.findall(r"^.*\bcimport\b.*$", path.read_text(), re.MULTILINE):
            words = line.split()
            if words[0] == "#" or words[:2] == ["cimport", "cython"] or words[1].startswith(("libc.", "cpython.")):
                continue
            assert re.match(r"from \.+\w", line), f"setup.py does not understand {line!r} in {path}"
        assert not re.search(r"^\s*include\s", path.read_text(), re.MULTILINE), f"setup.py does not follow it: {path}"


def test_a_build_for_a_broker_leaves_modules_of_clients_for_the_next_build(checkout: Path) -> None:
    sources = compiled_sources()
    if not all(map(is_compiled, sources)):
        pytest.skip("not all modules are compiled: `pip install -e .` with a C compiler builds them")
    shutil.copytree(ROOT / "build" / "compiled", checkout / "build" / "compiled")
    kept = {path: path.read_bytes() for path in (checkout / "build" / "compiled").glob("*producer.sequences_cy-*")}
    for path in kept:
        path.unlink()
    older = checkout / "client" / "producer" / f"sequences_cy{EXT_SUFFIX}"
    older.write_bytes(b"compiled from older sources")
    wheel, written = build_wheel(checkout, GREGOR_COMPILE_FOR="broker")
    assert "are to be compiled" not in written
    assert len(compiled_modules(wheel)) == len(sources)
    assert not any("sequences_cy" in name for name in compiled_modules(wheel))
    assert not older.exists()

    for path, module in kept.items():
        path.write_bytes(module)
    wheel, _ = build_wheel(checkout, GREGOR_COMPILE_FOR="broker")
    assert len(compiled_modules(wheel)) == len(sources) + 1


def test_an_editable_installation_warns_of_nothing(checkout: Path) -> None:
    written = run_python(
        checkout,
        "-c",
        "from setuptools import build_meta; import sys; sys.argv = ['setup.py']; build_meta.build_editable('dist')",
        GREGOR_PURE_PYTHON="1",
    )
    assert "Warning" not in written
    assert "!!" not in written
