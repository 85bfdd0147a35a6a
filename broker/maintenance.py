"""What a broker does now and then: retention, flushes that are due, checkpoints, removal of deleted files."""

from __future__ import annotations

import logging

import trio

from ..storage.clock import Clock
from ..storage.log_manager import LogManager
from .config import BrokerConfig

logger = logging.getLogger(__name__)


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
