"""What a broker does now and then: retention, compaction, flushes that are due, checkpoints, removal of files."""

from __future__ import annotations

import logging

import trio

from ..storage.cleaner import COMPACTION_FAULTS
from ..storage.clock import Clock
from ..storage.compaction import Compaction, CompactionLimits
from ..storage.io_throttle import IoThrottle
from ..storage.log_manager import LogManager
from .config import BrokerConfig

logger = logging.getLogger(__name__)

MOST_BUFFER_BYTES = 2**31 - 1
"""As much of `log.cleaner.dedupe.buffer.size` as one compaction takes, as in Kafka."""

SHORTEST_PAUSE_S = 0.05
"""Between two looks for what to compact, whatever the configuration says."""


async def maintain_logs(logs: LogManager, config: BrokerConfig, clock: Clock) -> None:
    """Look after the logs every ``log.retention.check.interval.ms``, until cancelled.

    What is quick runs here, where appends run too; what waits for the disk runs in a worker thread. A step that was
    begun is finished: the files must not change under `LogManager.close`.
    """
    await trio.sleep(config.log_initial_task_delay_ms / 1000)
    while True:
        try:
            slow_steps = logs.run_maintenance(clock.now_ms())
        except Exception:
            logger.exception("maintenance of the logs failed")
            slow_steps = []
        for step in slow_steps:
            await trio.to_thread.run_sync(step)
        await trio.sleep(config.log_retention_check_interval_ms / 1000)


async def compact_logs(logs: LogManager, config: BrokerConfig) -> None:
    """Compact what needs it most, up to ``log.cleaner.threads`` logs at a time, until cancelled (Kafka ``LogCleaner``).

    When nothing needs it, the next look is after ``log.cleaner.backoff.ms``. All ``log.cleaner.*`` settings but
    ``log.cleaner.enable`` count from the next look on.
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
    """What one compaction may take; all of them share the memory."""
    share_bytes = config.log_cleaner_dedupe_buffer_size // max(config.log_cleaner_threads, 1)
    return CompactionLimits(min(share_bytes, MOST_BUFFER_BYTES), config.log_cleaner_io_buffer_load_factor, throttle)


class _Compactions:
    """Those that run, each in a worker thread."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._one_ended = trio.Event()
        self.running: set[Compaction] = set()

    async def run(self, job: Compaction) -> None:
        """Run one of `running` and put what it made in place."""
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
        """Until one of them has ended."""
        self._one_ended = trio.Event()
        await self._one_ended.wait()
