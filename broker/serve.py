"""`gregor serve`: one broker in one process, from its start line to its exit status."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import signal
import sys
import time
from pathlib import Path

import trio

from .. import __version__
from ..protocol.errors import BrokerError
from ..storage.log_directory import StorageUnavailableError
from .broker import Broker
from .config import BrokerConfig, ConfigError
from .network.listeners import ListenerError

logger = logging.getLogger(__name__)

LOG_FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
GARBAGE_THRESHOLD = 20_000
"""Allocations between two looks for cycles: requests make few, and each look costs everybody's time."""


def serve(config: BrokerConfig) -> int:
    """Run a broker until SIGTERM or SIGINT; returns the exit status: 0, or 1 with one line if it could not start."""
    # Whoever reads the log may go away; that is no reason to fill standard error with tracebacks.
    logging.raiseExceptions = False
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stdout)
    for level, lines in zip((logging.INFO, logging.WARNING), config.notices(), strict=True):
        for line in lines:
            logger.log(level, "%s", line)
    try:
        trio.run(_run_until_signalled, config)
    except (ListenerError, StorageUnavailableError, ConfigError, BrokerError) as error:
        print(f"gregor: {error}", file=sys.stderr)  # noqa: T201 (the one line that a user reads)
        return 1
    return 0


async def _run_until_signalled(config: BrokerConfig) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        broker = Broker(config)
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            try:
                await nursery.start(broker.run)
            except (ListenerError, StorageUnavailableError, ConfigError, BrokerError) as error:
                failure = error
            else:
                _say_started(broker)
                gc.collect()
                gc.freeze()
                gc.set_threshold(GARBAGE_THRESHOLD)
                async for number in signals:
                    logger.info("%s: stopping", signal.Signals(number).name)
                    broker.stop()
                    break
        if failure is not None:
            raise failure
    logger.info("stopped")


def _say_started(broker: Broker) -> None:
    node_id = broker.config.node_id
    logger.info(
        "gregor %s accepts connections on %s; log.dirs=%s node.id=%d cluster.id=%s; %d partitions, up after %d ms, "
        "record kernel %s",
        __version__,
        ",".join(map(str, broker.listening)),
        ",".join(broker.config.log_dirs),
        node_id,
        broker.metadata.cluster_id,
        len(broker.partitions),
        milliseconds_since_exec(),
        "compiled" if is_kernel_compiled() else "in pure Python",
    )
    # Lines that testcontainers and scripts wait for before they use a Kafka.
    logger.info("The broker has been unfenced. Transitioning from RECOVERY to RUNNING.")
    logger.info("[KafkaServer id=%d] started", node_id)
    logger.info("[KafkaRaftServer nodeId=%d] Kafka Server started", node_id)


def is_kernel_compiled() -> bool:
    """Whether the conversion loops are machine code."""
    kernel = importlib.import_module("..protocol.records.kernel_cy", __package__)
    return not (kernel.__file__ or "").endswith(".py")


def milliseconds_since_exec() -> int:
    """How long this process has been running, by the kernel's count."""
    fields_after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started_s = int(fields_after_name[19]) / os.sysconf("SC_CLK_TCK")
    return round((time.clock_gettime(time.CLOCK_BOOTTIME) - started_s) * 1000)
