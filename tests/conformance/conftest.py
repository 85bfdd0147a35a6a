"""Paths of the peers beside the checkout: Apache Kafka 3.9.1, the client zoo, vectors and raw requests."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_process import KEEPS_OLD_RECORDS, running_broker
from tests.waiting import PATIENCE_S

PEER_RELEASE = "3.9.1"
"""The release that the peer's script takes unless told otherwise."""
SHARED = Path(__file__).resolve().parents[3] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder ``../shared`` with vectors and peers; skips where there is none, as on a user's machine."""
    if not SHARED.is_dir():
        pytest.skip("no ../shared beside this checkout: its vectors, clients and Kafka 3.9.1 are needed here")
    return SHARED


def free_port_pair() -> int:
    """Return a port P with P and P + 1 free on loopback; Kafka's peer script uses P + 1 for its controller."""
    for port in range(19700, 19900, 2):
        try:
            with socket.socket() as first, socket.socket() as second:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
        except OSError:
            continue
        return port
    raise RuntimeError("no two free ports between 19700 and 19900")


@contextlib.contextmanager
def running_kafka(shared: Path, *settings: str, release: str = PEER_RELEASE) -> Iterator[str]:
    """Run a fresh Apache Kafka with these settings for the length of a block; provide its address.

    The block's end removes the data; until then records of any age are kept.
    """
    environment = dict(os.environ)
    if release != PEER_RELEASE:
        home = Path.home() / ".cache" / f"peer-kafka-{release}"
        environment |= {"PEER_VERSION": release, "PEER_HOME": str(home)}
    script = shared / "peer" / "kafka39"
    if not script.exists() or shutil.which("java") is None:
        pytest.skip("Apache Kafka 3.9.1 needs ../shared/peer and a Java 17")
    port = str(free_port_pair())
    # A test run that was killed leaves the data of its Kafka behind, and a Kafka on the same port would serve them.
    subprocess.run([script, "stop", port], check=False, capture_output=True, env=environment)
    try:
        command = [str(script), "start", port, *settings, KEEPS_OLD_RECORDS]
        started = subprocess.run(command, capture_output=True, text=True, env=environment)
        # The script waits for only half a minute, which is too short on a busy machine.
        wait_until_it_listens(int(port), started.stderr)
        yield f"127.0.0.1:{port}"
    finally:
        subprocess.run([script, "stop", port], check=False, capture_output=True, env=environment)


def wait_until_it_listens(port: int, trouble: str) -> None:
    """Return once the port accepts connections; else fail, with the output of the process."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    pytest.fail(f"Apache Kafka does not start:\n{trouble}")


@pytest.fixture(scope="session")
def kafka_391(shared: Path) -> Iterator[str]:
    """Provide the address of a Kafka for all tests; topics in it need names of their own."""
    with running_kafka(shared) as address:
        yield address


PEER_SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.num.partitions=4",
    "transaction.state.log.num.partitions=4",
)
"""Settings that ``../shared/peer/kafka39`` gives to Kafka, for a fair comparison."""


@pytest.fixture
def zoo_broker(tmp_path: Path) -> Iterator[str]:
    """Provide the address of a fresh broker for real clients."""
    with running_broker(tmp_path, *PEER_SETTINGS) as broker:
        yield broker.bootstrap


@pytest.fixture
def differential_broker(tmp_path: Path) -> Iterator[str]:
    """Provide the address of a fresh broker with exactly the settings of the stored answers."""
    hurried = (
        "log.retention.check.interval.ms=500",
        "log.initial.task.delay.ms=500",
        "log.cleaner.backoff.ms=300",
        "log.segment.delete.delay.ms=500",
    )
    with running_broker(tmp_path, *PEER_SETTINGS, *hurried, keeps_old_records=False) as broker:
        yield broker.bootstrap
