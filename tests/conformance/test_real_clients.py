"""The client zoo: 32 real, pinned clients from 0.8.2 to 4.x against the broker that a user starts."""

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.peer


def test_every_client_of_the_zoo_passes_every_mode(shared: Path, zoo_broker: str) -> None:
    zoo = shared / "clients" / "zoo"
    if not zoo.exists():
        pytest.skip("no ../shared/clients")
    run = subprocess.run([zoo, zoo_broker], capture_output=True, text=True, timeout=7200)
    failed = [line for line in run.stdout.splitlines() if "| FAIL |" in line]
    print(run.stdout[-4000:])
    assert not failed, "\n".join(failed)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    assert " 0 failed, 32 clients" in run.stdout
