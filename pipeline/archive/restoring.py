"""The restore of one partition's archived batches to a Gregor broker, at their original offsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from ...client.mirroring.outgoing import with_offsets_kept
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.append_numbered import (
    AppendNumberedPartition,
    AppendNumberedPartitionResponse,
    AppendNumberedRequest,
    AppendNumberedResponse,
    AppendNumberedTopic,
)
from ...protocol.records.batches import BatchView, iter_batches
from ...protocol.topic_partition import AnyTopicPartition
from ..errors import PipelineError
from ..kafka.cluster_view import ClusterView
from ..kafka.offset_options import EARLIEST, LATEST
from ..kafka.wire import WireSettings
from .reading import ArchivedPartition

REQUEST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class RestoreWork:
    """The work of one task: an archived partition, and its target topic."""

    source: ArchivedPartition
    topic: str
    settings: WireSettings


@dataclass(frozen=True, slots=True)
class RestoreReceipt:
    """The result of a task: batches sent by this run, and the offsets of the log now (the end exclusive)."""

    place: AnyTopicPartition
    batches: int
    start_offset: int
    end_offset: int


def restore(work: RestoreWork) -> RestoreReceipt:
    """Append the batches that the log lacks, by the log end offset of the broker. Raises PipelineError."""
    place = (work.topic, work.source.partition)
    sent = 0
    with ClusterView(work.settings) as cluster:
        end = cluster.list_offsets({place: LATEST})[place] or 0
        for payload, count, last_offset in _requests(work.source, end):
            answer = cluster.retry("AppendNumbered", partial(_append, cluster, place, payload))
            if answer.log_end_offset != last_offset + 1:
                raise PipelineError(
                    f"{place[0]}-{place[1]} ends at offset {answer.log_end_offset}, and the archive's last offset is "
                    f"{last_offset}: another client writes to it"
                )
            sent += count
        start, end = (cluster.list_offsets({place: at})[place] or 0 for at in (EARLIEST, LATEST))
    return RestoreReceipt(place, sent, start, end)


def _append(cluster: ClusterView, place: AnyTopicPartition, payload: bytes) -> AppendNumberedPartitionResponse:
    topic, partition = place
    request = AppendNumberedRequest(
        topics=[AppendNumberedTopic(name=topic, partitions=[AppendNumberedPartition(index=partition, records=payload)])]
    )
    answer = cluster.leader(topic, partition).request(request, AppendNumberedResponse, version=0)
    (part,) = answer.topics[0].partitions
    if part.error_code:
        raise BrokerError(ErrorCode(part.error_code), f"{topic}-{partition}: {part.error_message}")
    return part


def _requests(source: ArchivedPartition, from_offset: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield requests of batches from that offset on: the bytes, the number of batches, and the last offset."""
    waiting: list[bytes] = []
    size = last_offset = 0
    for batch in _batches(source, from_offset):
        data = with_offsets_kept(batch, 0)
        if not data:
            continue
        if waiting and size + len(data) > REQUEST_BYTES:
            yield b"".join(waiting), len(waiting), last_offset
            waiting, size = [], 0
        waiting.append(data)
        size += len(data)
        last_offset = batch.last_offset
    if waiting:
        yield b"".join(waiting), len(waiting), last_offset


def _batches(source: ArchivedPartition, from_offset: int) -> Iterator[BatchView]:
    for table, _ in source.rows(from_offset):
        if table.num_rows:
            for stored in table["raw"]:
                yield from iter_batches(stored.as_buffer())
