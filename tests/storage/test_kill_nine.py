"""kill -9 at random moments: acknowledged batches are intact, and idempotent ones are not duplicated."""

import random
import subprocess
import sys
from pathlib import Path

from gregor.storage.clock import SystemClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log_manager import LogManager
from tests.storage.kill_victim import value
from tests.storage.payloads import read_all

KILLS = 8
VICTIM = Path(__file__).with_name("kill_victim.py")


def run_and_kill(directory: Path, sequence: int, acknowledgements: int) -> dict[int, int]:
    """Kill the victim after at least this many acknowledged batches; return their offset by sequence number."""
    command = [sys.executable, str(VICTIM), str(directory), str(sequence)]
    acknowledged: dict[int, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE) as victim:
        assert victim.stdout is not None
        for line in victim.stdout:
            if len(acknowledged) == acknowledgements:
                victim.kill()
            if line.endswith(b"\n"):
                number, offset = map(int, line.split())
                acknowledged[number] = offset
    return acknowledged


def test_acknowledged_records_survive_kills_and_are_not_duplicated(tmp_path: Path) -> None:
    chance = random.Random(9)
    acknowledged: dict[int, int] = {}
    sequence = 0
    for _ in range(KILLS):
        found = run_and_kill(tmp_path, sequence, chance.randrange(1, 400))
        assert found
        for number, offset in found.items():
            assert acknowledged.setdefault(number, offset) == offset, "a duplicate gets its old offset"
        # The last batch may be in the log without an acknowledgement: the producer sends it again.
        sequence = max(acknowledged)
    logs = LogManager([str(tmp_path)], LogConfig(retention_ms=-1), SystemClock())
    logs.open_all()
    log = logs.get("topic", 0)
    assert log is not None
    held = {record.offset: record.value for record in read_all(log)}
    assert sorted(held) == list(range(log.log_end_offset))
    for number, offset in acknowledged.items():
        assert held[offset] == value(number)
    assert len(set(held.values())) == len(held)
    logs.close()
