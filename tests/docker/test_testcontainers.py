"""Stock testcontainers modules from the package registries start the image, of which only the name is given."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docker.engine import BUILD_PATIENCE_S, IMAGE, Engine

pytestmark = pytest.mark.peer

MODULES = Path(__file__).with_name("modules")
PYTHON_MODULE = ("testcontainers==4.15.0", "packaging", "confluent-kafka")


def run(engine: Engine, *command: str) -> subprocess.CompletedProcess[str]:
    # There is no registry for the image of the module's own reaper.
    environment = engine.environment | {"TESTCONTAINERS_RYUK_DISABLED": "true"}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=BUILD_PATIENCE_S, check=False
    )


def test_the_python_module_in_both_its_modes(engine: Engine, tmp_path: Path) -> None:
    """It sources bash-config in a plain sh, edits and runs configure, formats the storage, and waits for a log line."""
    python = str(tmp_path / "venv" / "bin" / "python")
    assert run(engine, sys.executable, "-m", "venv", str(tmp_path / "venv")).returncode == 0
    installed = run(engine, python, "-m", "pip", "install", "--quiet", *PYTHON_MODULE)
    if installed.returncode != 0:
        pytest.skip(f"the module cannot be installed here: {installed.stderr.strip()[-300:]}")
    # The module reads its way of starting from this name and its version.
    name = "confluentinc/cp-kafka:7.6.0"
    engine.docker("tag", IMAGE, name)
    done = run(engine, python, str(MODULES / "python_module.py"), name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["zookeeper: a round trip", "kraft: a round trip"]
