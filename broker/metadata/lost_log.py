"""Whether the controller's metadata log is all there: a controller that has lost it must not begin a new one.

Brokers would forget their topics by it, and the partitions that are on its own disk would be led by it alone.
"""

from __future__ import annotations

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.internal_topics import CLUSTER_METADATA
from ...storage.log_manager import LogManager

NEXT_STEP = (
    "Nothing was changed. Give it the newest copy of the metadata that any broker has with "
    "`gregor metadata recover` (docs/cluster.md)"
)


def check_is_whole(logs: LogManager) -> None:
    """Raise BrokerError KAFKA_STORAGE_ERROR if there was more of the metadata log once than there is now.

    `recovery-point-offset-checkpoint` tells up to where it was on the disk.
    """
    known_end = logs.checkpointed_recovery_point(CLUSTER_METADATA, 0)
    if known_end is None:
        return
    log = logs.get(CLUSTER_METADATA, 0)
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
