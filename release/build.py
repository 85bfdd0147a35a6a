"""Build what a release uploads into dist/: an sdist, a compiled wheel for each Python, and a pure wheel for all others.

    python release/build.py --python python3.11 --python python3.12

Wheels are built from the sdist, as pip builds them where no wheel fits. They carry the tag of this machine
(linux_x86_64), which a package index refuses: the release workflow builds those in manylinux containers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def build(pythons: list[str], folder: Path) -> list[Path]:
    """Build sdist and wheels into an emptied folder and check their metadata; return the files.

    Raises subprocess.CalledProcessError if a step fails.
    """
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", str(folder), str(ROOT))
    (sdist,) = folder.glob("*.tar.gz")
    for python in pythons:
        build_wheel(python, sdist)
    build_wheel(sys.executable, sdist, GREGOR_PURE_PYTHON="1")
    made = sorted(folder.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, made))
    return made


def build_wheel(python: str, sdist: Path, **environment: str) -> None:
    """Build the wheel of one Python beside the sdist."""
    options = ["--quiet", "--no-deps", "--no-cache-dir", "--wheel-dir", str(sdist.parent)]
    run(python, "-m", "pip", "wheel", *options, str(sdist), **environment)


def run(*command: str, **environment: str) -> None:
    """Run a command. Raises subprocess.CalledProcessError."""
    subprocess.run(command, check=True, env={**os.environ, **environment})


def main() -> None:
    """Build as the command line says, and print the files with their sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", action="append", default=[], help="a Python to build a compiled wheel for; repeatable"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the files (default: dist)")
    options = parser.parse_args()
    for file in build(options.python or [sys.executable], options.out):
        print(f"{file.stat().st_size:>10} {file.name}")


if __name__ == "__main__":
    main()
