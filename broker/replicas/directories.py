"""Handling of log directories that fail, or refuse writes for a while (KIP-112, KIP-858)."""

from __future__ import annotations

import logging
from contextlib import suppress

import trio

from ...protocol.internal_topics import CLUSTER_METADATA
from ...storage.disk.log_directory import LogDirectory, StorageUnavailableError
from ...storage.log_manager import LogManager
from .replication.replicas import Replicas

logger = logging.getLogger(__name__)

PROBE_S = 1.0
"""Pause between two checks whether a directory accepts writes again."""
NAMES_TOLD = 10
"""Maximum number of partitions in one log line."""


class Directories:
    """A monitor of the log directories of one broker, active while `run` runs."""

    def __init__(self, logs: LogManager, replicas: Replicas) -> None:
        self._logs = logs
        self._replicas = replicas
        self._known_failed: set[str] = set()
        self._noticed = trio.Event()
        self._change = trio.Event()

    async def wait_for_change(self) -> None:
        """Wait until the health of a directory has changed and the partitions of a failed one are offline.

        See `LogDirectories.failed_ids` and `unwritable_ids`.
        """
        await self._change.wait()

    async def run(self) -> None:
        """Handle changes of directories' health until cancelled.

        Raises StorageUnavailableError, one line for the operator, when the broker cannot continue: all directories have
        failed, or the one with the metadata log (Kafka halts in both cases).
        """
        token = trio.lowlevel.current_trio_token()

        def tell() -> None:
            # A fault may occur in a worker thread that ends after the event loop.
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(self._notice)

        self._logs.health.on_health_change = tell
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._probe)
                while True:
                    self._noticed = trio.Event()
                    self._take_failures()
                    self._announce()
                    await self._noticed.wait()
        finally:
            self._logs.health.on_health_change = None

    def _notice(self) -> None:
        self._noticed.set()

    def _announce(self) -> None:
        changed, self._change = self._change, trio.Event()
        changed.set()

    def _take_failures(self) -> None:
        for directory in self._logs.directories:
            if directory.health.failure is not None and directory.path not in self._known_failed:
                self._known_failed.add(directory.path)
                self._take_offline(directory)

    def _take_offline(self, directory: LogDirectory) -> None:
        lost = self._logs.drop_failed(directory)
        self._replicas.take_offline(lost)
        if any(name.topic == CLUSTER_METADATA for name in lost):
            raise StorageUnavailableError(
                f"Shutdown broker because the metadata log dir {directory.path} has failed: {directory.health.failure}"
            )
        if len(self._known_failed) == len(self._logs.directories):
            paths = ", ".join(sorted(self._known_failed))
            raise StorageUnavailableError(f"Shutdown broker because all log dirs in {paths} have failed")
        told = ", ".join(map(str, lost[:NAMES_TOLD])) + (", ..." if len(lost) > NAMES_TOLD else "")
        logger.warning("%d partitions of %s are offline: %s", len(lost), directory.path, told or "none")

    async def _probe(self) -> None:
        """Check periodically whether directories that refuse writes accept them again, while there are any."""
        while True:
            if not self._logs.health.unwritable_ids():
                await self._change.wait()
                continue
            await trio.sleep(PROBE_S)
            await trio.to_thread.run_sync(self._logs.health.probe)
