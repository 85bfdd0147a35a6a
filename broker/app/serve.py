"""`gregor serve`: one broker in one process, from its first log line to its exit status."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import trio

from ... import __version__
from ...protocol.errors import BrokerError
from ...storage.disk.log_directory import StorageUnavailableError
from ..config import BrokerConfig, ConfigError
from ..config.listeners import ListenerError
from ..monitoring.loggers import LEVELS
from .allocator import limit_kept_memory
from .announcement import UNANNOUNCED, Announcement
from .broker import Broker

logger = logging.getLogger(__name__)

ONE_LINE_FAILURES = (ListenerError, StorageUnavailableError, ConfigError, BrokerError)
"""Errors that keep a broker from starting or continuing; each is printed as one line."""
LOG_FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
GARBAGE_THRESHOLD = 20_000
"""Allocations between two garbage collections: requests make few cycles, and a collection delays every request."""


def serve(config: BrokerConfig, announcement: Announcement = UNANNOUNCED) -> int:
    """Run a broker until SIGTERM or SIGINT; return the exit status: 0, or 1 after one error line if it cannot serve."""
    # If the reader of standard output closes it, the logger must not fill standard error with tracebacks.
    logging.raiseExceptions = False
    limit_kept_memory()
    log = sys.stderr if announcement.is_json else sys.stdout
    logging.basicConfig(level=LEVELS[config.gregor_log_level], format=LOG_FORMAT, stream=log)
    for level, lines in zip((logging.INFO, logging.WARNING), config.notices(), strict=True):
        for line in lines:
            logger.log(level, "%s", line)
    try:
        trio.run(_run_until_signalled, config, announcement)
    except ONE_LINE_FAILURES as error:
        print(f"gregor: {error}", file=sys.stderr)  # noqa: T201 (the one line that a user reads)
        return 1
    finally:
        announcement.ended()
    return 0


async def _run_until_signalled(config: BrokerConfig, announcement: Announcement) -> None:
    broker = Broker(config)
    failure: Exception | None = None
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as watching:
            watching.start_soon(_stop_at_signal, signals, broker, watching.cancel_scope)
            try:
                async with trio.open_nursery() as nursery:
                    await nursery.start(broker.run)
                    _say_started(broker)
                    announcement.ready(broker)
                    gc.collect()
                    gc.freeze()
                    gc.set_threshold(GARBAGE_THRESHOLD)
            except ExceptionGroup as group:
                failure = _only_failure(group)
            watching.cancel_scope.cancel()
    if failure is not None:
        raise failure
    logger.info("stopped")


def _only_failure(group: ExceptionGroup[Exception]) -> Exception:
    """Return the single error of `ONE_LINE_FAILURES` that a group of exceptions holds; raise any other group."""
    found: list[Exception] = []
    pending: list[Exception] = [group]
    while pending:
        error = pending.pop()
        if isinstance(error, ExceptionGroup):
            pending += error.exceptions
        else:
            found.append(error)
    if len(found) == 1 and isinstance(found[0], ONE_LINE_FAILURES):
        return found[0]
    raise group


async def _stop_at_signal(signals: AsyncIterator[int], broker: Broker, everything: trio.CancelScope) -> None:
    async for number in signals:
        logger.info("%s: stopping", signal.Signals(number).name)
        if broker.services.serving.is_ready:
            broker.stop()
        else:
            # No client has been served yet: a broker that waits for its controller may stop at once.
            everything.cancel()
        return


def _say_started(broker: Broker) -> None:
    node_id = broker.config.node_id
    logger.info(
        "gregor %s accepts connections on %s; log.dirs=%s node.id=%d cluster.id=%s; %d partitions, up after %d ms, "
        "record kernel %s",
        __version__,
        ",".join(map(str, broker.services.serving.listening)),
        ",".join(broker.config.log_dirs),
        node_id,
        broker.services.metadata.cluster_id,
        len(broker.services.partitions),
        milliseconds_since_exec(),
        "compiled" if is_kernel_compiled() else "in pure Python",
    )
    # Kafka's lines, which testcontainers and scripts wait for before they use a broker.
    logger.info("The broker has been unfenced. Transitioning from RECOVERY to RUNNING.")
    logger.info("[KafkaServer id=%d] started", node_id)
    logger.info("[KafkaRaftServer nodeId=%d] Kafka Server started", node_id)


def is_kernel_compiled() -> bool:
    """Return whether the record conversion loops are compiled to machine code."""
    kernel = importlib.import_module("...protocol.records.kernel_cy", __package__)
    return not (kernel.__file__ or "").endswith(".py")


def milliseconds_since_exec() -> int:
    """Return the age of this process by the kernel's clock, in milliseconds."""
    fields_after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started_s = int(fields_after_name[19]) / os.sysconf("SC_CLK_TCK")
    return round((time.clock_gettime(time.CLOCK_BOOTTIME) - started_s) * 1000)
