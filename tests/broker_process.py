"""The broker as a user starts it, but for the exec: a process of its own, configured on its command line."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.forked_programs import ForkedProgram, fork_server
from tests.free_ports import free_address
from tests.waiting import PATIENCE_S

GREGOR = ("-m", "gregor.command_line")
"""Arguments with which Python runs the program `gregor`."""
KEEPS_OLD_RECORDS = "log.retention.ms=-1"
"""Records of tests have times of their own, and a slow test must not lose them when the hour of retention comes."""


@dataclass(slots=True, eq=False)
class BrokerProcess:
    """A running ``gregor serve`` with its data and its output in ``directory``."""

    process: ForkedProgram
    address: tuple[str, int]
    directory: Path
    overrides: tuple[str, ...]

    @property
    def bootstrap(self) -> str:
        """Return the address for ``bootstrap.servers`` of clients."""
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def output(self) -> str:
        """Return all that it has printed so far."""
        return (self.directory / "server.log").read_text(errors="replace")

    def kill(self) -> None:
        """Kill the process with SIGKILL, so that it neither flushes nor logs."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Stop the process with SIGTERM, as an init system does; return the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still there {PATIENCE_S} s after SIGTERM:\n{self.output()}") from None

    def start_again(self) -> None:
        """Start the same command again, on the same port and data, after `kill` or `stop`."""
        self.respawn()
        wait_until_it_answers(self)

    def respawn(self) -> None:
        """Start the same command again without waiting; see `start_again`."""
        self.process = spawn_broker(self.address, self.directory, self.overrides)


def start_broker(
    directory: Path, *overrides: str, program: tuple[str, ...] = GREGOR, keeps_old_records: bool = True
) -> BrokerProcess:
    """Start a broker on a free port of loopback; returns once it accepts connections.

    Another ``program`` is one that takes the same arguments, once: `start_again` is always `gregor` itself.
    """
    directory.mkdir(parents=True, exist_ok=True)
    address = free_address()
    if keeps_old_records:
        overrides = (KEEPS_OLD_RECORDS, *overrides)
    broker = BrokerProcess(spawn_broker(address, directory, overrides, program), address, directory, overrides)
    wait_until_it_answers(broker)
    return broker


@contextlib.contextmanager
def running_broker(directory: Path, *overrides: str, keeps_old_records: bool = True) -> Iterator[BrokerProcess]:
    """Provide a broker for the length of a block; it must end well."""
    broker = start_broker(directory, *overrides, keeps_old_records=keeps_old_records)
    try:
        yield broker
    finally:
        if broker.process.poll() is None:
            assert broker.stop() == 0, broker.output()
        assert "RecompressionsOnAppend" not in broker.output(), "batches are stored as they were produced"


def spawn_broker(
    address: tuple[str, int], directory: Path, overrides: tuple[str, ...], program: tuple[str, ...] = GREGOR
) -> ForkedProgram:
    """Start the process and do not wait; of settings that are given twice the later one counts."""
    own = (f"listeners=PLAINTEXT://{address[0]}:{address[1]}", f"log.dirs={directory / 'logs'}")
    settings = [*own, *overrides]
    command = [*program, "serve"]
    for setting in settings:
        command += ["--override", setting]
    return fork_server().fork(command, os.environ, directory / "server.log")


def wait_until_it_answers(broker: BrokerProcess) -> None:
    """Return once the broker accepts connections. Raises AssertionError with its output if it ends instead."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if broker.process.poll() is not None:
            raise AssertionError(f"it ended with status {broker.process.returncode}:\n{broker.output()}")
        with contextlib.suppress(OSError), socket.create_connection(broker.address, 1):
            return
        time.sleep(0.01)
    broker.kill()
    raise AssertionError(f"no answer within {PATIENCE_S} s:\n{broker.output()}")
