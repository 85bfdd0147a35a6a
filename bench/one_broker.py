"""A Gregor broker of its own for one measurement."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

START_LIMIT_S = 20.0
PEER = Path(__file__).resolve().parents[2] / "shared" / "peer" / "kafka39"
PEER_HOME = os.environ.get("PEER_HOME", Path.home() / ".cache" / "peer-kafka39")
KAFKA_PORT = 19680


@dataclass(frozen=True)
class OneBroker:
    """A running broker: its address, its process id for CPU times, and the directory of its partitions."""

    bootstrap: str
    pid: int
    log_directory: Path = Path()

    def cpu_seconds(self) -> float:
        """Return the user and system time of the process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


@contextmanager
def one_broker(*overrides: str) -> Iterator[OneBroker]:
    """Run a broker on a free port with data in a temporary directory, during the context."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="gregor-bench-") as directory:
        command = [sys.executable, "-m", "gregor.command_line", "serve"]
        for setting in (f"listeners=PLAINTEXT://127.0.0.1:{port}", f"log.dirs={directory}/logs", *overrides):
            command += ["--override", setting]
        with (Path(directory) / "server.log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_for(port)
            yield OneBroker(f"127.0.0.1:{port}", process.pid, Path(directory) / "logs")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


@contextmanager
def kafka_broker(port: int = KAFKA_PORT) -> Iterator[OneBroker]:
    """Run Apache Kafka 3.9.1 during the context, if ../shared/peer is there; it also takes the port after `port`."""
    start = subprocess.run([PEER, "start", str(port)], check=True, capture_output=True, text=True)
    bootstrap, _, pid = start.stdout.split()
    try:
        yield OneBroker(bootstrap, int(pid), Path(PEER_HOME) / f"data-{port}" / "log")
    finally:
        subprocess.run([PEER, "stop", str(port)], check=False)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"no broker on port {port} within {START_LIMIT_S} s")
