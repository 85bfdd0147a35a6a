"""A cluster on one machine: a process for each broker, their logs merged into one, stopped together."""

from __future__ import annotations

import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import trio

CONTROLLER_ID = 1
OWN_KEYS = ("listeners", "advertised.listeners", "node.id", "broker.id", "process.roles", "log.dirs", "log.dir")
OWN_PREFIX = "controller."
STARTED = "[KafkaServer id="
"""The text that a broker logs once it accepts clients."""
STOP_S = 15.0
"""The time limit for stopping a broker; brokers stop one after the other and hand over their leaderships."""


class ClusterFailedError(Exception):
    """The cluster cannot run; the text is one line that names the reason."""


class LocalCluster:
    """A cluster of N brokers, of which the first is also the controller."""

    def __init__(
        self, count: int, directory: Path, *, host: str, first_port: int, overrides: Sequence[str] = ()
    ) -> None:
        """Choose the ports. Raises ClusterFailedError for an override of a setting that the cluster itself makes."""
        for override in overrides:
            name = override.partition("=")[0].strip()
            if name in OWN_KEYS or name.startswith(OWN_PREFIX):
                raise ClusterFailedError(
                    f"--override {name}: each broker of a cluster needs its own value; see --port and --dir"
                )
        self._directory = directory
        self._host = host
        self._overrides = list(overrides)
        self._ids = range(CONTROLLER_ID, CONTROLLER_ID + count)
        *free, self._controller_port = _free_ports(host, count + 1)
        ports = free if first_port == 0 else range(first_port, first_port + count)
        self._ports = dict(zip(self._ids, ports, strict=True))
        self._processes: dict[int, trio.Process] = {}
        self._started: set[int] = set()
        self._is_stopping = False

    @property
    def bootstrap(self) -> str:
        """The value of ``bootstrap.servers`` for clients."""
        return ",".join(f"{self._host}:{port}" for port in self._ports.values())

    def settings(self, node_id: int) -> list[str]:
        """Return the settings of one broker as key=value; later ones take precedence."""
        count = len(self._ids)
        listeners = f"PLAINTEXT://{self._host}:{self._ports[node_id]}"
        roles = "broker"
        if node_id == CONTROLLER_ID:
            listeners += f",CONTROLLER://{self._host}:{self._controller_port}"
            roles = "broker,controller"
        return [
            f"offsets.topic.replication.factor={min(3, count)}",
            f"transaction.state.log.replication.factor={min(3, count)}",
            f"transaction.state.log.min.isr={min(2, count)}",
            *self._overrides,
            f"node.id={node_id}",
            f"process.roles={roles}",
            f"listeners={listeners}",
            f"controller.quorum.voters={CONTROLLER_ID}@{self._host}:{self._controller_port}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={self._directory / f'broker-{node_id}'}",
        ]

    async def run(self) -> None:
        """Run all brokers until SIGTERM or SIGINT. Raises ClusterFailedError if one ends by itself before that."""
        failed: list[int] = []
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                for node_id in self._ids:
                    await nursery.start(self._run_broker, node_id, failed)
                nursery.start_soon(self._stop_at_signal, signals)
                await self._wait_for_all()
                nursery.cancel_scope.cancel()
        if failed:
            raise ClusterFailedError(f"broker {failed[0]} has ended: its log has the reason")

    async def _wait_for_all(self) -> None:
        for process in self._processes.values():
            await process.wait()

    async def _run_broker(
        self, node_id: int, failed: list[int], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        arguments = ["serve"]
        for setting in self.settings(node_id):
            arguments += ["--override", setting]
        command = [sys.executable, "-m", "gregor.command_line", *arguments]
        process = await trio.lowlevel.open_process(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # A Ctrl-C is sent to this process, which then stops the brokers in order.
            start_new_session=True,
        )
        self._processes[node_id] = process
        task_status.started()
        try:
            async for line in _lines(process):
                self._say(node_id, line)
            status = await process.wait()
            if not self._is_stopping:
                again = shlex.join(["gregor", *arguments])
                self._say(node_id, f"has ended with status {status}; to start it again: {again}")
                if node_id not in self._started:
                    failed.append(node_id)
                    await self._stop()
        finally:
            if process.poll() is None:
                process.kill()

    def _say(self, node_id: int, line: str) -> None:
        print(f"broker {node_id} | {line}", flush=True)  # noqa: T201 (the cluster's log)
        if STARTED in line and node_id not in self._started:
            self._started.add(node_id)
            if len(self._started) == len(self._ids):
                print(f"all {len(self._ids)} brokers are ready: bootstrap.servers={self.bootstrap}", flush=True)  # noqa: T201

    async def _stop_at_signal(self, signals: AsyncIterator[int]) -> None:
        async for _ in signals:
            await self._stop()
            return

    async def _stop(self) -> None:
        """Stop the brokers, the controller last, so that each of the others can hand over its leaderships."""
        self._is_stopping = True
        with trio.move_on_after(STOP_S):
            for node_id in reversed(self._ids):
                process = self._processes.get(node_id)
                if process is not None and process.poll() is None:
                    process.terminate()
                    await process.wait()
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()


async def _lines(process: trio.Process) -> AsyncIterator[str]:
    """Yield the output of a process, line by line."""
    if process.stdout is None:
        return
    rest = b""
    async for chunk in process.stdout:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


def _free_ports(host: str, count: int) -> list[int]:
    """Return ports that are free at this moment.

    Raises ClusterFailedError if the host is not an address of this machine.
    """
    with ExitStack() as held:
        try:
            return [held.enter_context(socket.create_server((host, 0))).getsockname()[1] for _ in range(count)]
        except OSError as error:
            raise ClusterFailedError(f"cannot listen on {host}: {error.strerror or error}") from None
