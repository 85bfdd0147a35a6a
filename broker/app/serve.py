"""`gregor serve`: one broker in one process."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Sequence

from ... import __version__
from ..config import BrokerConfig
from ..process.running import is_kernel_compiled, milliseconds_since_exec, run_until_signalled
from .announcement import UNANNOUNCED, Announcement
from .broker import Broker
from .lifetime import BrokerLifetime

logger = logging.getLogger(__name__)

Companion = Callable[[BrokerLifetime], Awaitable[None]]
"""A task that runs beside the broker, and may restart or stop it; it ends with the broker."""


def serve(config: BrokerConfig, announcement: Announcement = UNANNOUNCED, companions: Sequence[Companion] = ()) -> int:
    """Run a broker until SIGTERM or SIGINT; return the exit status: 0, or 1 after one error line if it cannot serve."""

    def on_ready(lifetime: BrokerLifetime) -> None:
        _say_started(lifetime.broker)
        announcement.ready(lifetime.broker)

    log = sys.stderr if announcement.is_json else sys.stdout
    try:
        return run_until_signalled(config, lambda: BrokerLifetime(config), on_ready, log, companions)
    finally:
        announcement.ended()


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
