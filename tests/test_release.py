"""The files of a release: the sdist, the page of the package index, and a first record with each Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from email import message_from_bytes, message_from_string
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent
FIRST_RECORD = ROOT / "release" / "first_record.py"
MINORS = (11, 12, 13, 14)
BUILD_PATIENCE_S = 8 * PATIENCE_S


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [*map(str, command)],
        cwd="/",
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def pythons() -> Iterator[Path]:
    """Yield an interpreter of each minor version that this machine has."""
    for minor in MINORS:
        installed = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        found = shutil.which(f"python3.{minor}") if not installed else str(installed[-1])
        if found is not None:
            yield Path(found)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the files that `release/build.py` makes, with a compiled wheel for this Python."""
    if subprocess.run([sys.executable, "-c", "import build, twine"], capture_output=True, check=False).returncode:
        pytest.skip("building a release needs gregor-broker[release] (`make dist` and `make peers` install it)")
    folder = tmp_path_factory.mktemp("release") / "dist"
    run(sys.executable, ROOT / "release" / "build.py", "--out", folder, GREGOR_PROJECT_URL="https://example.org/gregor")
    return sorted(folder.iterdir())


def named(files: list[Path], ending: str) -> Path:
    (found,) = (path for path in files if path.name.endswith(ending))
    return found


def metadata_of(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


@pytest.mark.peer
def test_the_sdist_contains_docs_and_config_but_no_tests_or_compiled_files(files: list[Path]) -> None:
    with tarfile.open(named(files, ".tar.gz")) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    wanted = [
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "config/server.properties",
        "docs/testing.md",
        "docker/Dockerfile",
    ]
    assert [name for name in wanted if name not in held] == []
    assert [name for name in held if name.startswith("tests") or name.endswith((".so", ".pyc"))] == []


@pytest.mark.peer
def test_the_wheels_are_a_compiled_and_a_pure_one(files: list[Path]) -> None:
    tag = f"cp3{sys.version_info.minor}"
    for ending, is_compiled in ((f"-{tag}-{tag}-linux_x86_64.whl", True), ("-py3-none-any.whl", False)):
        wheel = named(files, ending)
        with ZipFile(wheel) as archive:
            assert any(name.endswith(".so") for name in archive.namelist()) == is_compiled
        metadata = metadata_of(wheel)
        assert metadata["Name"] == "gregor-broker"
        assert "Source, https://example.org/gregor" in (metadata.get_all("Project-URL") or [])


@pytest.mark.peer
@pytest.mark.parametrize("python", list(pythons()), ids=lambda path: path.parent.parent.name)
def test_the_pure_wheel_installs_and_runs_on_each_python_version(
    files: list[Path], tmp_path: Path, python: Path
) -> None:
    run(python, "-m", "venv", tmp_path / "venv")
    installed = tmp_path / "venv" / "bin" / "python"
    run(installed, "-m", "pip", "install", "--quiet", named(files, "-none-any.whl"))
    assert "the first record after" in run(installed, FIRST_RECORD)
    assert run(tmp_path / "venv" / "bin" / "gregor", "--version").startswith("gregor ")


@pytest.mark.parametrize("url", ["", "https://example.org/gregor/"])
def test_the_package_page_has_only_absolute_https_links(url: str) -> None:
    """Without the repository's address there are no links, since a package index has none of the files."""
    script = "import setup, sys; sys.stdout.write(setup.package_page())"
    page = run(sys.executable, "-c", f"import sys; sys.argv = ['setup.py', '--version']; {_at_root(script)}",
               GREGOR_PROJECT_URL=url, GREGOR_PURE_PYTHON="1")  # fmt: skip
    assert "**A Kafka broker in Python" in message_from_string(f"\n{page}").get_payload()
    links = re.findall(r"\]\(([^)]*)\)", page)
    assert [link for link in links if not link.startswith("https://")] == []
    assert ("https://example.org/gregor/blob/main/docs/testing.md" in links) == bool(url)


def _at_root(script: str) -> str:
    """Return a script that runs in the checkout, where setup.py and the README are."""
    return f"import os; os.chdir({str(ROOT)!r}); sys.path.insert(0, {str(ROOT)!r}); {script}"
