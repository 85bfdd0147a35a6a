"""Applications of `frameworks/`, built by Maven and kept in the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "frameworks"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gregor-frameworks"
BUILD_LIMIT_S = 1800.0
JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
PACKAGE = ("mvn", "-q", "-B", "-DskipTests", "package", "dependency:copy-dependencies", "-DincludeScope=runtime")


def built(name: str, **properties: str) -> Path:
    """Return the folder `target` of an application, built once from these sources with these properties.

    An underscore in the name of a property is a dot for Maven. Skips the test with the reason if the application
    cannot be built.
    """
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("there is no Maven or no Java here")
    given = [f"-D{key.replace('_', '.')}={value}" for key, value in sorted(properties.items())]
    sources = sorted(path for path in (SOURCES / name).rglob("*") if path.is_file())
    contents = b"".join(path.read_bytes() for path in sources) + " ".join(given).encode()
    digest = hashlib.sha256(contents).hexdigest()[:16]
    folder, done = CACHE / f"{name}-{digest}", CACHE / f"{name}-{digest}" / "done"
    folder.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.copytree(SOURCES / name, folder, dirs_exist_ok=True)
            command = [*PACKAGE, *given, f"-DoutputDirectory={folder}/target/lib"]
            build = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_LIMIT_S)
            if build.returncode:
                pytest.skip(f"{name} cannot be built here: {(build.stdout + build.stderr).strip()[-400:]}")
            done.touch()
    return folder / "target"
