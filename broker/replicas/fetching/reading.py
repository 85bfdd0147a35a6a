"""Reads of partitions for a Fetch: limits, isolation levels and errors, independent of record formats.

Rules (Kafka: ReplicaManager.readFromLog, Partition.fetchRecords):

- Up to version 2 a partition's limit is hard, even in the middle of the first batch. If that batch is converted, the
  limit applies to the converted messages: the client gets those that fit (Kafka converts nothing then, and such a
  consumer makes no progress). From version 3 on (KIP-74) the first partition that has data gives at least one batch,
  however large, and no other one gives a partial first batch.
- Consumers read up to the high watermark, with ``read_committed`` up to the last stable offset; followers to the end.
- Followers read from the leader only, and so do consumers before version 11, which cannot be sent to other replicas
  (KIP-392).
- The positions in a follower's fetch are recorded once, when it arrives, and not again when it was delayed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.fetch import AbortedTransaction, EpochEndOffset, FetchPartition, PartitionData
from ....protocol.records.tagged_batches import encode_tagged_batches
from ....protocol.records.v0 import OFFSET_AND_SIZE
from ....storage.index.copied_tags import tag_runs_of
from ....storage.index.slice_tags import tags_in
from ....storage.log.partition_log import LogSlice, PartitionLog
from ..partition import NO_LEADER_EPOCH, Partition
from ..replication.throttle import ReplicationThrottle
from .near_replicas import RackAwareSelector
from .sessions import FetchedPartition

logger = logging.getLogger(__name__)

LAST_VERSION_WITH_HARD_LIMIT = 2
FIRST_VERSION_FROM_FOLLOWERS = 11
NO_OFFSET = -1
MOST_TAGGED_BATCHES = 4096
"""Most batches of a partition in one answer with tags: each costs some microseconds."""
CONSUMER = -1
"""The replica id of a consumer."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """A record of the limits of one request, and of its sender."""

    version: int
    max_bytes: int
    read_committed: bool
    replica_id: int = CONSUMER
    """Broker id of the fetching follower."""
    replica_epoch: int = -1
    """The follower's broker epoch, -1 if it sends none."""
    wants_tags: bool = False
    """Whether the answer includes the enriched tags of the batches (`gregor_with_tags`)."""
    wants_tag_runs: bool = False
    """Whether the answer includes the tags of the index, for a copy of the stored batches (`gregor_with_tag_runs`)."""
    near_replicas: RackAwareSelector | None = None
    """The selector of another replica for the consumer (KIP-392)."""
    throttle: ReplicationThrottle | None = None
    """The throttle of followers that are not in sync (KIP-73)."""

    @property
    def is_follower(self) -> bool:
        """Whether a follower fetches."""
        return self.replica_id >= 0

    def must_wait(self, partition: Partition) -> bool:
        """Return whether the throttle delays a follower (Kafka `ReplicaManager.shouldLeaderThrottle`)."""
        if self.throttle is None or partition.leadership is None or self.replica_id in partition.leadership.in_sync:
            return False
        return self.throttle.must_wait(partition.topic, partition.index)

    @property
    def leader_only(self) -> bool:
        """Whether only the leader may serve the request."""
        return self.is_follower or self.version < FIRST_VERSION_FROM_FOLLOWERS


@dataclass(slots=True)
class PartitionRead:
    """A result of reading one partition: the answer without its records, and the slice of the log with the records."""

    fetched: FetchedPartition
    partition: Partition | None
    answer: PartitionData
    records: LogSlice | None = None
    most_bytes: int | None = None
    """Limit of the answer's records if the slice's first batch alone is larger."""

    @property
    def size_bytes(self) -> int:
        """The number of bytes of records, as stored."""
        if self.records is None:
            return 0
        return self.records.size_bytes if self.most_bytes is None else min(self.records.size_bytes, self.most_bytes)

    @property
    def answers_at_once(self) -> bool:
        """Whether the request must not be delayed: there is an error, a diverging epoch or a preferred replica."""
        answer = self.answer
        return (
            answer.error_code != ErrorCode.NONE
            or answer.diverging_epoch.epoch >= 0
            or answer.preferred_read_replica >= 0
        )

    def release(self) -> None:
        """Release the slice of the log."""
        if self.records is not None:
            self.records.release()
            self.records = None


def read_partitions(
    wanted: Iterable[tuple[FetchedPartition, Partition | ErrorCode]], limits: FetchLimits, *, has_waited: bool = False
) -> list[PartitionRead]:
    """Read one partition after the other until ``limits.max_bytes`` are found.

    Partitions of which a follower has all records and all state are left out: in a follower's session there may be
    hundreds of such partitions for each one that has changed.
    """
    reads = []
    remaining_bytes = limits.max_bytes
    at_least_one = limits.version > LAST_VERSION_WITH_HARD_LIMIT
    for fetched, found in wanted:
        if isinstance(found, ErrorCode):
            reads.append(PartitionRead(fetched, None, failed_partition(fetched.wanted.partition, found)))
            continue
        if limits.is_follower and _has_no_news(fetched, found) and (has_waited or _idles(fetched, found, limits)):
            continue
        read = _read_or_fail(fetched, found, limits, remaining_bytes, at_least_one, has_waited)
        reads.append(read)
        if read.size_bytes:
            at_least_one = False
            remaining_bytes = max(0, remaining_bytes - read.size_bytes)
    return reads


def count_copied(reads: Iterable[PartitionRead], limits: FetchLimits) -> None:
    """Count the records that are sent to a follower, for the throttle."""
    if limits.throttle is not None:
        for read in reads:
            if read.partition is not None:
                limits.throttle.record(read.partition.topic, read.partition.index, read.size_bytes)


def failed_partition(index: int, code: ErrorCode) -> PartitionData:
    """Return the answer for a partition that cannot be read (Kafka: FetchResponse.partitionResponse)."""
    return PartitionData(partition_index=index, error_code=code, high_watermark=NO_OFFSET, records=b"")


def _has_no_news(fetched: FetchedPartition, partition: Partition) -> bool:
    """Return whether a follower has all records and state of a partition, which is possible only in a session."""
    wanted, log = fetched.wanted, partition.log
    return (
        wanted.fetch_offset == fetched.known_high_watermark == log.high_watermark == log.log_end_offset
        and fetched.known_log_start_offset == log.log_start_offset
        and _is_of_this_epoch(wanted, partition)
        and partition.leadership is not None
    )


def _is_of_this_epoch(wanted: FetchPartition, partition: Partition) -> bool:
    """Return whether a follower has the present leader epoch, and the epoch of the log's last record."""
    return (
        wanted.last_fetched_epoch == partition.log.leader_epoch
        and wanted.current_leader_epoch == partition.leader_epoch
    )


def _has_all(wanted: FetchPartition, partition: Partition, replica_id: int) -> bool:
    leadership = partition.leadership
    return (
        wanted.fetch_offset == partition.log.log_end_offset
        and _is_of_this_epoch(wanted, partition)
        and leadership is not None
        and replica_id in leadership.followers
    )


def _idles(fetched: FetchedPartition, partition: Partition, limits: FetchLimits) -> bool:
    """Return whether a fetch changes nothing but the follower's last fetch time, which is recorded."""
    wanted, leadership = fetched.wanted, partition.leadership
    return leadership is not None and leadership.idles(
        limits.replica_id,
        wanted.fetch_offset,
        log_start_offset=wanted.log_start_offset,
        broker_epoch=limits.replica_epoch,
    )


def note_all_is_copied(found: Sequence[tuple[FetchedPartition, Partition | ErrorCode]], limits: FetchLimits) -> bool:
    """Record the fetch of a follower that is at the log ends, and return True; else return False and record nothing."""
    for fetched, partition in found:
        if isinstance(partition, ErrorCode) or not _has_all(fetched.wanted, partition, limits.replica_id):
            return False
    for fetched, partition in found:
        if isinstance(partition, Partition) and not _idles(fetched, partition, limits):
            wanted = fetched.wanted
            partition.follower_fetched(
                limits.replica_id,
                wanted.fetch_offset,
                log_start_offset=wanted.log_start_offset,
                broker_epoch=limits.replica_epoch,
            )
    return True


def all_rest(found: Sequence[tuple[FetchedPartition, Partition | ErrorCode]], limits: FetchLimits) -> bool:
    """Return whether the fetch of a follower changes nothing, and nothing is to be told to it, for any partition."""
    return all(
        isinstance(partition, Partition) and _has_no_news(fetched, partition) and _idles(fetched, partition, limits)
        for fetched, partition in found
    )


def _read_or_fail(
    fetched: FetchedPartition,
    partition: Partition,
    limits: FetchLimits,
    remaining_bytes: int,
    at_least_one: bool,
    has_waited: bool,
) -> PartitionRead:
    try:
        return _read(fetched, partition, limits, remaining_bytes, at_least_one, has_waited)
    except BrokerError as error:
        code = error.code
    except Exception:
        logger.exception("reading %s-%d failed", partition.topic, partition.index)
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    answer = failed_partition(partition.index, code)
    answer.aborted_transactions = None
    return PartitionRead(fetched, partition, answer)


def _read(
    fetched: FetchedPartition,
    partition: Partition,
    limits: FetchLimits,
    remaining_bytes: int,
    at_least_one: bool,
    has_waited: bool,
) -> PartitionRead:
    wanted = fetched.wanted
    log = partition.log
    check_leader_epoch(partition, wanted.current_leader_epoch)
    if partition.role is not None and limits.leader_only:
        partition.check_leader()
    advice = _advice_instead(partition, wanted, limits)
    if advice is not None:
        return PartitionRead(fetched, partition, advice)
    max_bytes = min(wanted.partition_max_bytes, remaining_bytes)
    if max_bytes < 0:
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Invalid max size {max_bytes} for a read")
    upper_bound = _upper_bound(log, limits)
    records = log.read(wanted.fetch_offset, max_bytes, upper_bound_offset=upper_bound, at_least_one=at_least_one)
    if limits.is_follower and not has_waited:
        try:
            partition.follower_fetched(
                limits.replica_id,
                wanted.fetch_offset,
                log_start_offset=wanted.log_start_offset,
                broker_epoch=limits.replica_epoch,
            )
        except BrokerError:
            records.release()
            raise
    answer = _answer_of(partition)
    if limits.read_committed:
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in log.aborted_transactions(wanted.fetch_offset, records.end_offset)
        ]
    is_cut = records.size_bytes == max_bytes and not at_least_one
    must_wait = limits.is_follower and limits.must_wait(partition)
    is_useless = is_cut and limits.version > LAST_VERSION_WITH_HARD_LIMIT and _begins_incomplete(records)
    if is_useless or must_wait or not records.size_bytes:
        records.release()
        return PartitionRead(fetched, partition, answer)
    if is_cut and limits.version <= LAST_VERSION_WITH_HARD_LIMIT and _begins_incomplete(records):
        records.release()
        records = log.read(wanted.fetch_offset, max_bytes, upper_bound_offset=upper_bound)
        return PartitionRead(fetched, partition, answer, records, max_bytes)
    if limits.wants_tags:
        answer.gregor_batch_tags = encode_tagged_batches(tags_in(records, MOST_TAGGED_BATCHES))
    if limits.wants_tag_runs:
        answer.gregor_tag_runs = tag_runs_of(records).encode()
    return PartitionRead(fetched, partition, answer, records)


def _advice_instead(partition: Partition, wanted: FetchPartition, limits: FetchLimits) -> PartitionData | None:
    """Return an answer that names another replica or a diverging epoch, None for a client that gets records.

    Raises BrokerError OFFSET_OUT_OF_RANGE.
    """
    nearer = None if limits.near_replicas is None else limits.near_replicas.find(partition, wanted.fetch_offset)
    if nearer is not None:
        answer = _answer_of(partition)
        answer.preferred_read_replica = nearer
        return answer
    diverging = _diverging_epoch(partition, wanted)
    if diverging is not None:
        answer = _answer_of(partition)
        answer.diverging_epoch = diverging
        return answer
    return None


def _upper_bound(log: PartitionLog, limits: FetchLimits) -> int:
    """Return the end of the readable records, as an exclusive offset."""
    if limits.is_follower:
        return log.log_end_offset
    return log.last_stable_offset if limits.read_committed else log.high_watermark


def _answer_of(partition: Partition) -> PartitionData:
    """Return an answer without records."""
    log = partition.log
    return PartitionData(
        partition_index=partition.index,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        records=b"",
    )


def _begins_incomplete(records: LogSlice) -> bool:
    """Return whether not even the first batch is complete, so that a modern client could not use it."""
    if records.size_bytes < OFFSET_AND_SIZE.size:
        return True
    _, size_bytes = OFFSET_AND_SIZE.unpack(os.pread(records.descriptor, OFFSET_AND_SIZE.size, records.position))
    return bool(OFFSET_AND_SIZE.size + size_bytes > records.size_bytes)


def check_exact_leader_epoch(partition: Partition, current_leader_epoch: int) -> None:
    """Check a leader epoch as `check_leader_epoch` does, for requests in which only -1 means none.

    Source: Kafka `ListOffsetsRequest`, `OffsetsForLeaderEpochRequest`, whose epochs are absent only if they are -1.
    """
    if current_leader_epoch < NO_LEADER_EPOCH:
        raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH)
    check_leader_epoch(partition, current_leader_epoch)


def check_leader_epoch(partition: Partition, current_leader_epoch: int) -> None:
    """Refuse a client whose metadata is older or newer than this broker's (KIP-320); a negative epoch means none.

    Raises BrokerError FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
    """
    if current_leader_epoch < 0 or current_leader_epoch == partition.leader_epoch:
        return
    if current_leader_epoch < partition.leader_epoch:
        raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH)
    raise BrokerError(ErrorCode.UNKNOWN_LEADER_EPOCH)


def _diverging_epoch(partition: Partition, wanted: FetchPartition) -> EpochEndOffset | None:
    """Return the end of the last common epoch if the client's log diverges (KIP-595).

    Raises BrokerError OFFSET_OUT_OF_RANGE.
    """
    if wanted.last_fetched_epoch < 0:
        return None
    epoch, end_offset = partition.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, "the end offset of the last fetched epoch is not known")
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None
