"""Detection of lost metadata: a controller that has lost its log must not start a new one.

Otherwise brokers would delete their topics, and the controller alone would lead the partitions on its own disk.
"""

from __future__ import annotations

import logging

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.internal_topics import CLUSTER_METADATA
from ...storage.log_manager import LogManager

logger = logging.getLogger(__name__)

NEXT_STEP = (
    "Nothing was changed. Give it the newest copy of the metadata that any broker has with "
    "`gregor metadata recover` (docs/cluster.md)"
)


def check_is_whole(logs: LogManager) -> None:
    """Raise BrokerError KAFKA_STORAGE_ERROR if the metadata log is shorter than it once was.

    `recovery-point-offset-checkpoint` holds the offset up to which the log was flushed.
    """
    known_end = logs.checkpointed_recovery_point(CLUSTER_METADATA, 0)
    if known_end is None:
        return
    log = logs.get(CLUSTER_METADATA, 0)
    if log is None or log.log_end_offset < known_end:
        logs.keep_recovery_point(CLUSTER_METADATA, 0)
    if log is None:
        raise BrokerError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"the controller's metadata log is lost: {CLUSTER_METADATA}-0, which had {known_end} records, is in none "
            f"of log.dirs. {NEXT_STEP}",
        )
    if log.log_end_offset < known_end:
        raise BrokerError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"the controller has lost metadata: {log.directory} ends at offset {log.log_end_offset}, and was on the "
            f"disk up to offset {known_end}. {NEXT_STEP}",
        )


def warn_of_loss(logs: LogManager) -> None:
    """Warn about the losses of a lone broker whose metadata log is missing or shorter than it was.

    Such a broker adopts its topics from their directories, as it does with a copied Kafka directory.
    """
    known_end = logs.checkpointed_recovery_point(CLUSTER_METADATA, 0)
    log = logs.get(CLUSTER_METADATA, 0)
    end = 0 if log is None else log.log_end_offset
    partition_count = sum(name.topic != CLUSTER_METADATA for name in logs.partitions())
    if end == 0 and partition_count:
        state = "is empty" if log is not None else "is in none of log.dirs"
        logger.warning(
            "%s-0 %s, and %d partitions are in them: topics are created from these partitions with "
            "the broker's default configuration. "
            "If this broker had topic or broker configurations, quotas, SCRAM credentials or features, they are lost",
            CLUSTER_METADATA,
            state,
            partition_count,
        )
    elif known_end is not None and end < known_end:
        logger.warning(
            "%s-0 ends at offset %d and was on the disk up to offset %d: the latest changes are lost",
            CLUSTER_METADATA,
            end,
            known_end,
        )
