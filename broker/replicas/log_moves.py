"""Moves of partitions to another log directory (KIP-113): one after the other, a little at a time.

Only partitions without other replicas are moved.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import trio

from ...protocol.errors import BrokerError
from ...storage.clock import Clock
from ...storage.disk.log_directory import LogDirectory
from ...storage.log_manager import LogManager
from ...storage.log_move import LogMove
from .partition import Partition

logger = logging.getLogger(__name__)


class LogMoves:
    """A queue of the requested moves."""

    def __init__(self, logs: LogManager, clock: Clock, moved: Callable[[Partition], None] | None = None) -> None:
        """Call `moved` with each partition whose log has moved to another directory."""
        self._logs = logs
        self._clock = clock
        self._waiting: deque[tuple[Partition, LogMove]] = deque()
        self._asked = trio.Event()
        self._moved = moved

    def start(self, partition: Partition, target: LogDirectory) -> None:
        """Start the move of a partition, or cancel its move if ``target`` is its present directory.

        Raises OSError, BrokerError.
        """
        log = partition.log
        move = self._logs.move_of(log.topic, log.partition)
        if self._logs.directory_of(log.topic, log.partition) is target:
            self._logs.give_up_move(log.topic, log.partition)
        elif move is None or move.target is not target:
            self._waiting.append((partition, self._logs.begin_move(log, target)))
            self._asked.set()

    async def run(self) -> None:
        """Execute queued moves, until cancelled."""
        while True:
            while self._waiting:
                await self._run(*self._waiting.popleft())
            self._asked = trio.Event()
            await self._asked.wait()

    async def _run(self, partition: Partition, move: LogMove) -> None:
        log = move.source
        try:
            await self._follow(move)
            if move.is_over or partition.role is not None:
                return
            partition.log = self._logs.finish_move(move)
            logger.info("%s-%d was moved to %s", log.topic, log.partition, move.target.path)
            if self._moved is not None:
                self._moved(partition)
        except (BrokerError, OSError) as fault:
            logger.error("%s could not be moved: %s", log.directory, fault)
        finally:
            if not move.is_over:
                self._logs.give_up_move(log.topic, log.partition)

    async def _follow(self, move: LogMove) -> None:
        """Copy until all is copied or the move is cancelled."""
        while not move.is_over and move.step():
            flush = move.due_flush(self._clock.now_ms())
            if flush is not None:
                await trio.to_thread.run_sync(flush)
            await trio.lowlevel.checkpoint()
