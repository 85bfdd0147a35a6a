"""A follower's decisions: where to cut its log when it turns out to differ from the leader's, and where to go on.

Source: Kafka `AbstractFetcherThread.getOffsetTruncationState`, `fetchOffsetAndTruncate`; KIP-101, KIP-279, KIP-595.
"""

from __future__ import annotations

from ...protocol.messages.fetch import EpochEndOffset
from ...storage.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from ...storage.partition_log import PartitionLog


def truncation_offset(log: PartitionLog, diverging: EpochEndOffset) -> int:
    """Up to where ``log`` may agree with a leader that tells where its largest epoch not above our last one ends.

    Where we never had that epoch, only our own end of the next lower one is sure so far: the next fetch will tell more.
    """
    if diverging.epoch == UNDEFINED_EPOCH or diverging.end_offset == UNDEFINED_OFFSET:
        return log.high_watermark
    own_epoch, own_end = log.end_offset_for_epoch(diverging.epoch)
    if own_end == UNDEFINED_OFFSET:
        return min(diverging.end_offset, log.log_end_offset)
    if own_epoch == diverging.epoch:
        return min(diverging.end_offset, own_end, log.log_end_offset)
    return min(own_end, log.log_end_offset)


def forget_unproven_tail(log: PartitionLog) -> None:
    """Cut what is above the high watermark if the log cannot tell in which epochs it was written.

    Such a tail could not be compared with the leader's (Kafka `truncateToHighWatermark`). Raises BrokerError.
    """
    if log.leader_epoch == UNDEFINED_EPOCH and log.log_end_offset > log.high_watermark:
        log.truncate_to(log.high_watermark)


def continue_within(log: PartitionLog, leader_start_offset: int, leader_end_offset: int) -> None:
    """Make the log's end lie in what the leader has, after it refused to read there. Raises BrokerError.

    A leader that ends before us was elected although it lacked records (unclean election); one that begins after us has
    deleted what we have not copied.
    """
    if leader_end_offset < log.log_end_offset:
        log.truncate_to(leader_end_offset)
    elif leader_start_offset > log.log_end_offset:
        log.truncate_fully(leader_start_offset)
