"""Gregor and Apache Kafka 3.9.1 as processes that a measurement may stop, kill and start again with their data."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.side_by_side import SHARED

KAFKA_PORT, GREGOR_PORT = 19660, 19670
KAFKA_HOME = Path(os.environ.get("PEER_HOME", Path.home() / ".cache" / "peer-kafka39"))
START_LIMIT_S = 600.0
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class BenchBroker:
    """One of the two brokers; `log_directory` holds its partitions. `start` must be called first."""

    def __init__(self, name: str, port: int, log_directory: Path) -> None:
        self.name = name
        self.address = ("127.0.0.1", port)
        self.log_directory = log_directory
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """Return the command that starts the broker."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self._process is not None
        return self._process.pid

    def spawn(self) -> None:
        """Start the broker without waiting."""
        with (self.log_directory.parent / "server.log").open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self) -> None:
        """Start the broker; return when it accepts connections."""
        self.spawn()
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(self.address, 1):
                return
            time.sleep(0.005)
        raise RuntimeError(f"{self.name}: no answer within {START_LIMIT_S} s; see {self.log_directory.parent}")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the broker, or kill it with SIGKILL; its data remains."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def cpu_seconds(self) -> float:
        """Return the user and system time of the process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def remove(self) -> None:
        """Stop the broker and delete its data."""
        self.stop()
        shutil.rmtree(self.log_directory.parent, ignore_errors=True)


def gregor_command(*settings: str) -> list[str]:
    """Return the command that starts a broker of this checkout; the later of two equal settings takes precedence."""
    command = [sys.executable, "-m", "gregor.command_line", "serve"]
    for setting in settings:
        command += ["--override", setting]
    return command


class Gregor(BenchBroker):
    """The broker of this checkout."""

    def __init__(self, directory: Path, settings: tuple[str, ...]) -> None:
        super().__init__("Gregor", GREGOR_PORT, directory / "logs")
        self._settings = settings
        directory.mkdir(parents=True)

    def command(self) -> list[str]:
        """Return the command `gregor serve`."""
        listener = f"listeners=PLAINTEXT://{self.address[0]}:{self.address[1]}"
        return gregor_command(listener, f"log.dirs={self.log_directory}", *self._settings)


class Kafka(BenchBroker):
    """The broker of Apache Kafka 3.9.1, as ../shared/peer creates it."""

    def __init__(self, settings: tuple[str, ...], port: int = KAFKA_PORT) -> None:
        directory = KAFKA_HOME / f"data-{port}"
        super().__init__("Kafka 3.9.1", port, directory / "log")
        # The peer's script fetches the jars, writes the configuration and formats the directory.
        script = SHARED / "peer" / "kafka39"
        subprocess.run([script, "stop", str(port)], check=True)
        subprocess.run([script, "start", str(port), *settings], check=True, stdout=sys.stderr)
        pid = int((directory / "pid").read_text())
        os.kill(pid, signal.SIGTERM)
        while Path(f"/proc/{pid}").exists():
            time.sleep(0.05)

    def command(self) -> list[str]:
        """Return the command that the script runs."""
        heap = os.environ.get("KAFKA_HEAP_OPTS", "-Xmx1g").split()
        logging = f"-Dlog4j.configuration=file:{KAFKA_HOME / 'log4j.properties'}"
        properties = self.log_directory.parent / "server.properties"
        return ["java", *heap, logging, "-cp", f"{KAFKA_HOME / 'lib'}/*", "kafka.Kafka", str(properties)]


@contextmanager
def broker_pair(scratch: Path, *settings: str, only: str | None = None) -> Iterator[list[BenchBroker]]:
    """Provide both brokers, stopped and empty, with these settings.

    Gregor alone without ../shared or with `only` "gregor", Kafka alone with "kafka".
    """
    brokers: list[BenchBroker] = []
    try:
        if only != "kafka":
            brokers.append(Gregor(scratch / "gregor", settings))
        if only != "gregor" and (SHARED / "peer").is_dir():
            brokers.append(Kafka(settings))
        yield brokers
    finally:
        for broker in brokers:
            broker.remove()
