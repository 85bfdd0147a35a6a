"""Periodic tasks of a broker: retention, compaction, due flushes, checkpoints, removal of files."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from ...storage.clock import Clock
from ...storage.compaction.cleaner import COMPACTION_FAULTS
from ...storage.compaction.compaction import Compaction, CompactionLimits
from ...storage.disk.io_throttle import IoThrottle
from ...storage.log_maintenance import LogMaintenance, Slow
from ...storage.log_manager import LogManager
from ..config import BrokerConfig

logger = logging.getLogger(__name__)

MOST_BUFFER_BYTES = 2**31 - 1
"""Largest share of `log.cleaner.dedupe.buffer.size` that one compaction takes, as in Kafka."""

LONGEST_FLUSH_PAUSE_MS = 10_000
"""Largest pause between two checks for due flushes. Kafka never checks unless log.flush.scheduler.interval.ms is set;
here `flush.ms` is effective without it, and finished segments are flushed as well."""

SHORTEST_PAUSE_S = 0.05
"""Smallest pause between two checks of any kind, whatever the configuration."""


class _Chore:
    """A periodic task; `begin` does its quick part and returns its slow part."""

    def __init__(self, begin: Callable[[], list[Slow]], pause_ms: Callable[[], float]) -> None:
        self.begin = begin
        self.pause_ms = pause_ms
        self.due_s = 0.0


async def maintain_logs(maintenance: LogMaintenance, config: BrokerConfig, clock: Clock) -> None:
    """Maintain the logs, each task at its own interval, until cancelled (Kafka ``LogManager.startup``).

    Quick work runs in the event loop, as appends do; work that waits for the disk runs in a worker thread, one step at
    a time. A step that was started is completed: files must not change during `LogManager.close`.
    """

    def flush_pause_ms() -> float:
        return min(config.log_flush_scheduler_interval_ms, maintenance.shortest_flush_ms, LONGEST_FLUSH_PAUSE_MS)

    def expire_producers() -> list[Slow]:
        maintenance.expire_producers(clock.now_ms())
        return []

    chores = (
        _Chore(lambda: maintenance.apply_retention(clock.now_ms()), lambda: config.log_retention_check_interval_ms),
        _Chore(lambda: maintenance.due_flushes(clock.now_ms()), flush_pause_ms),
        _Chore(maintenance.due_checkpoints, lambda: config.log_flush_offset_checkpoint_interval_ms),
        _Chore(expire_producers, lambda: config.producer_id_expiration_check_interval_ms),
    )
    await trio.sleep(config.log_initial_task_delay_ms / 1000)
    while True:
        for chore in chores:
            if chore.due_s <= trio.current_time():
                await _do(chore)
                chore.due_s = trio.current_time() + max(chore.pause_ms() / 1000, SHORTEST_PAUSE_S)
        await trio.sleep_until(min(chore.due_s for chore in chores))


async def _do(chore: _Chore) -> None:
    try:
        slow = chore.begin()
    except Exception:
        logger.exception("maintenance of the logs failed")
        return
    for step in slow:
        await trio.to_thread.run_sync(step)


async def compact_logs(logs: LogManager, config: BrokerConfig) -> None:
    """Compact the dirtiest logs, up to ``log.cleaner.threads`` at a time, until cancelled (Kafka ``LogCleaner``).

    If no log needs compaction, the next check is after ``log.cleaner.backoff.ms``. All ``log.cleaner.*`` settings
    except ``log.cleaner.enable`` take effect at the next check.
    """
    if not config.log_cleaner_enable:
        return
    await trio.sleep(config.log_initial_task_delay_ms / 1000)
    throttle = IoThrottle()
    compactions = _Compactions(logs)
    async with trio.open_nursery() as nursery:
        try:
            while True:
                throttle.bytes_per_second = config.log_cleaner_io_max_bytes_per_second
                logs.cleaner.limits = compaction_limits(config, throttle)
                job = logs.begin_compaction() if len(compactions.running) < config.log_cleaner_threads else None
                if job is not None:
                    compactions.running.add(job)
                    nursery.start_soon(compactions.run, job)
                else:
                    with trio.move_on_after(max(config.log_cleaner_backoff_ms / 1000, SHORTEST_PAUSE_S)):
                        await compactions.wait_for_an_end()
        finally:
            for job in compactions.running:
                job.cancel()


def compaction_limits(config: BrokerConfig, throttle: IoThrottle) -> CompactionLimits:
    """Return the limits of one compaction; all compactions share the memory."""
    share_bytes = config.log_cleaner_dedupe_buffer_size // max(config.log_cleaner_threads, 1)
    return CompactionLimits(min(share_bytes, MOST_BUFFER_BYTES), config.log_cleaner_io_buffer_load_factor, throttle)


class _Compactions:
    """A set of the running compactions, each in a worker thread."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._one_ended = trio.Event()
        self.running: set[Compaction] = set()

    async def run(self, job: Compaction) -> None:
        """Run one compaction of `running` and install its result."""
        cleaner = self._logs.cleaner
        try:
            await trio.to_thread.run_sync(job.run)
        except COMPACTION_FAULTS as fault:
            cleaner.fail(job, fault)
        except Exception as fault:
            logger.exception("a compaction failed")
            cleaner.fail(job, fault)
        except trio.Cancelled as fault:
            job.cancel()
            cleaner.fail(job, fault)
            raise
        else:
            cleaner.finish(job)
        finally:
            self.running.discard(job)
            self._one_ended.set()

    async def wait_for_an_end(self) -> None:
        """Wait until a compaction has ended."""
        self._one_ended = trio.Event()
        await self._one_ended.wait()
