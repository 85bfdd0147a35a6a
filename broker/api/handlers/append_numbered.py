"""AppendNumbered, which only `gregor mirror` sends: batches that keep the offsets of the source cluster."""

from __future__ import annotations

from collections.abc import Iterator

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import is_internal
from ....protocol.messages.append_numbered import (
    AppendNumberedPartition,
    AppendNumberedPartitionResponse,
    AppendNumberedRequest,
    AppendNumberedResponse,
    AppendNumberedTopicResponse,
)
from ....protocol.records import v2
from ....protocol.records.batches import BatchView, iter_batches
from ....protocol.records.offsets_cy import INT32
from ....protocol.records.tag_runs import TagRun, TagRuns
from ...replicas.partition import Partition
from ...server.pending import Pending, all_completed
from ..contract import RequestContext

REPLICATION_LIMIT_S = 30.0
"""Longest time in seconds that the answer waits for the followers: the default of clients' `request.timeout.ms`."""


def handle_append_numbered(request: AppendNumberedRequest, context: RequestContext) -> Pending[AppendNumberedResponse]:
    """Append missing batches to each partition; return its log end offset once all in-sync replicas have them."""
    answer = AppendNumberedResponse(
        topics=[
            AppendNumberedTopicResponse(
                name=topic.name,
                partitions=[_append(topic.name, part, context) for part in topic.partitions],
            )
            for topic in request.topics
        ]
    )
    parts = [
        _replicated(topic.name, part, context)
        for topic in answer.topics
        for part in topic.partitions
        if not part.error_code
    ]
    return all_completed(parts).map(lambda _: answer)


def _replicated(topic: str, answer: AppendNumberedPartitionResponse, context: RequestContext) -> Pending[None]:
    """Return a pending None, completed when the records are replicated or the answer has the error."""

    def finish(code: ErrorCode) -> None:
        if code:
            answer.error_code = code

    partition = context.services.partitions.get(topic, answer.index)
    return partition.replicated(answer.log_end_offset - 1, REPLICATION_LIMIT_S).map(finish)


def _append(topic: str, part: AppendNumberedPartition, context: RequestContext) -> AppendNumberedPartitionResponse:
    answer = AppendNumberedPartitionResponse(index=part.index)
    try:
        partition = context.services.partitions.led(topic, part.index)
        if is_internal(topic):
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")
        partition.check_leader()
        partition.check_in_sync()
        log = partition.log
        try:
            sent_tags = TagRuns.decode(part.tag_runs or b"")
            _append_missing(partition, memoryview(part.records or b""), sent_tags, context)
        finally:
            answer.log_start_offset, answer.log_end_offset = log.log_start_offset, log.log_end_offset
    except BrokerError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer


def _append_missing(partition: Partition, records: memoryview, sent: TagRuns, context: RequestContext) -> None:
    log = partition.log
    missing = bytearray()
    receipts: list[TagRun] = []
    for batch in _batches_from(records, log.log_end_offset):
        run = sent.of(batch)
        if run is not None and (not receipts or run.receipt_ms != receipts[-1].receipt_ms):
            # A client's other tags are not used: a false one would let the cleaner overlook keys.
            receipts.append(TagRun(len(missing), run.receipt_ms))
        missing += batch.view
    first = next(iter_batches(missing), None)
    if first is None:
        return
    if log.log_end_offset == log.log_start_offset and first.base_offset > log.log_end_offset:
        log.truncate_fully(first.base_offset)
    for batch in iter_batches(missing):
        if batch.magic == v2.MAGIC:
            # Leader epochs of the source cluster have no meaning in this one.
            INT32.pack_into(missing, batch.position + v2.LEADER_EPOCH_AT, partition.leader_epoch)
    end_before = log.log_end_offset
    partition.append_numbered(missing, TagRuns(receipts))
    counters = context.services.metrics.topics[partition.topic]
    counters.messages_in += log.log_end_offset - end_before
    counters.bytes_in += len(missing)


def _batches_from(records: memoryview, offset: int) -> Iterator[BatchView]:
    """Yield the batches that end at `offset` or later. Raises BrokerError for batches that a mirror may not send."""
    for batch in iter_batches(records):
        if batch.is_control or batch.is_transactional:
            raise BrokerError(ErrorCode.INVALID_RECORD, f"{batch!r} belongs to a transaction of another cluster")
        if batch.last_offset >= offset:
            yield batch
