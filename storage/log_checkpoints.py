"""The contents of Kafka's checkpoint files for the logs in one log directory."""

from __future__ import annotations

from ..protocol.topic_partition import TopicPartition
from .disk import paths
from .disk.log_directory import LogDirectory
from .log.partition_log import PartitionLog


def write_recovery_points(directory: LogDirectory, logs: list[tuple[TopicPartition, PartitionLog]]) -> None:
    """Write the recovery points and log start offsets of a directory's logs to its checkpoints.

    Raises OSError, and BrokerError if the directory has failed. Source: Kafka `LogManager.checkpointLogRecoveryOffsets`
    and `checkpointLogStartOffsets`.
    """
    directory.health.check()
    unopened = directory.unopened.items()
    recovery_points = {name: known.recovery_point for name, known in unopened}
    log_starts = {name: known.log_start_offset for name, known in unopened if known.log_start_offset}
    recovery_points.update((name, log.recovery_point) for name, log in logs)
    recovery_points.update(directory.kept_recovery_points)
    log_starts.update(
        (name, log.log_start_offset) for name, log in logs if log.log_start_offset > log.segment_list.base_offset
    )
    directory.write_checkpoint(paths.RECOVERY_POINT_CHECKPOINT, recovery_points)
    directory.write_checkpoint(paths.LOG_START_CHECKPOINT, log_starts)


def high_watermarks(
    directory: LogDirectory, logs: list[tuple[TopicPartition, PartitionLog]]
) -> dict[TopicPartition, int]:
    """Return the high watermarks of a directory's logs that have other replicas, for `replication-offset-checkpoint`.

    Logs that could not be opened keep the value of the last checkpoint. Source: Kafka
    `ReplicaManager.checkpointHighWatermarks`.
    """
    known = {name: log.high_watermark for name, log in logs if not log.sole_replica}
    known.update((name, it.high_watermark) for name, it in directory.unopened.items() if it.high_watermark)
    return known
