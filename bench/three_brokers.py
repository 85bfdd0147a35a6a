"""Three Gregor brokers as one cluster, the first of them slow: the setup of KIP-794's tests.

The cluster is `gregor cluster`'s. The slow broker has a fault rule (docs/faults.md) that holds each of its Produce
answers for a while, one after the other on a connection, as the KIP's broker does by sleeping in its produce response.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gregor.client.admin import Admin, AlterOperation, NewTopic, ResourceType
from gregor.client.offset_lookup import LATEST

BROKER_IDS = (1, 2, 3)
SLOW_BROKER_ID = BROKER_IDS[0]
RULE = "gregor.fault.rule.slow"
READY = re.compile(r"brokers are ready: bootstrap\.servers=(\S+)")
START_LIMIT_S = 60.0


@contextmanager
def three_brokers() -> Iterator[str]:
    """A cluster on free ports with data in a temporary directory, for the length of a block; its bootstrap servers."""
    with tempfile.TemporaryDirectory(prefix="gregor-bench-") as directory:
        command = [sys.executable, "-m", "gregor.broker.command_line", "cluster", "--brokers", str(len(BROKER_IDS))]
        command += ["--host", "127.0.0.1", "--port", "0", "--dir", directory]
        command += ["--override", "gregor.fault.injection.enable=true"]
        log_path = Path(directory) / "cluster.log"
        with log_path.open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield _bootstrap_once_ready(process, log_path)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _bootstrap_once_ready(process: subprocess.Popen[bytes], log_path: Path) -> str:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        if ready := READY.search(log_path.read_text()):
            return ready[1]
        time.sleep(0.05)
    raise RuntimeError(f"the cluster is not ready:\n{log_path.read_text()[-2000:]}")


async def slow_down(bootstrap: str, delay_ms: int) -> None:
    """Have the slow broker hold each Produce answer for so long from now on."""
    async with Admin(bootstrap) as admin:
        setting = (AlterOperation.SET, RULE, f"api=Produce delay={delay_ms}ms")
        await admin.alter_configs(ResourceType.BROKER, str(SLOW_BROKER_ID), [setting])


async def create_topic(bootstrap: str, name: str) -> None:
    """Create a topic with one partition on each broker, the slow one's first."""
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(name, replica_assignments=[[node] for node in BROKER_IDS])])


async def records_by_broker(bootstrap: str, topic: str) -> list[int]:
    """How many records each broker has got, the slow one first."""
    async with Admin(bootstrap) as admin:
        places = [(topic, partition) for partition in range(len(BROKER_IDS))]
        ends = await admin.list_offsets(dict.fromkeys(places, LATEST))
    found = [ends[place] for place in places]
    return [end.offset if end is not None else 0 for end in found]
