"""The partitions of a busy follower's session, and the bytes of its answers (`follower_lane_cy.py`).

This is ordinary Python that is also compiled: ``lane_answers_cy.pxd`` has the C types.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol

from ....protocol.apis import ApiKey
from ....protocol.unsigned_varint import encode_unsigned_varint
from ....storage.index.copied_tags import tag_runs_of
from ...server.parts import FileSlice
from ...server.transport import COPIED_BYTES

if TYPE_CHECKING:
    from ....storage.log.log_slice import LogSlice
    from ...monitoring.metrics import Metrics
    from ...server.parts import Answer
    from ..partition import Partition
    from ..replication.leadership import Leadership
    from .sessions import FetchedPartition

FETCH = ApiKey.FETCH
HEAD = Struct(">ixiHi")
"""The start of an answer: correlation id, no tagged fields, throttle time, error, session id."""
PARTITION = Struct(">iHqqqbi")
"""A partition in an answer: index, error, high watermark, last stable offset, log start, no transactions, replica."""
NO_TOPICS = b"\x01\0"
NO_RECORDS = b"\x01\0"
TAG_RUNS = b"\x01\xd4\x8e\x01"
"""The number of tagged fields, and the tag of `gregor_tag_runs`."""


class Lane(Protocol):
    """A view of a `FollowerLane`."""

    def note_append(self, each: LanePartition) -> None:
        """Answer the waiting Fetch soon, as this partition has records for it."""

    def end(self) -> None:
        """Stop watching, and answer the waiting Fetch."""


class LanePartition:
    """A partition of a session, which tells the lane of its appends and changes (a `PartitionWaiter`)."""

    def __init__(self, lane: Lane, fetched: FetchedPartition, partition: Partition, role: Leadership) -> None:
        self.lane = lane
        self.fetched = fetched
        self.partition = partition
        self.role = role
        self.topic_id = fetched.topic_id.bytes
        self.is_active = True
        """Whether the follower may lack records or state of the partition."""

    def appended(self, size_bytes: int) -> None:
        """Answer the waiting Fetch after this turn of the event loop."""
        self.lane.note_append(self)

    def changed(self) -> None:
        """End the lane: the follower's next Fetch looks at all partitions."""
        self.lane.end()


def empty_answer(correlation_id: int, session_id: int) -> Answer:
    """Return an answer without partitions."""
    return [HEAD.pack(correlation_id, 0, 0, session_id) + NO_TOPICS]


def answer_with(
    found: list[LanePartition],
    active: list[LanePartition],
    correlation_id: int,
    session_id: int,
    max_bytes: int,
    metrics: Metrics,
) -> Answer:
    """Return an answer with the records and the state of the partitions ``found``, all of which are ``active``.

    Those whose records are in the answer are moved to the end: with a small ``max_bytes`` every partition gets its
    turn. Raises BrokerError.
    """
    metrics.fetch_conversions.request_count += 1
    topics: list[tuple[bytes, list[list[Any]]]] = []
    entries: list[list[Any]] = []
    topic_id = b""
    left_bytes = max_bytes
    is_first = True
    count = 0
    for each in found:
        fetched, log = each.fetched, each.partition.log
        records: LogSlice | None = None
        if fetched.wanted.fetch_offset < log.log_end_offset:
            records = _read(each, left_bytes, is_first) if left_bytes > 0 else None
            if records is None:
                left_bytes = 0
                continue
            is_first = False
            left_bytes -= records.size_bytes
            active.remove(each)
            active.append(each)
        fetched.known_high_watermark = log.high_watermark
        fetched.known_log_start_offset = log.log_start_offset
        metrics.topics[fetched.topic].fetch_requests += 1
        entry = _entry(each, records)
        if topic_id == each.topic_id:
            entries.append(entry)
        else:
            topic_id, entries = each.topic_id, [entry]
            topics.append((topic_id, entries))
        count += 1
    if metrics.response_errors is not None:
        metrics.response_errors.add_success(FETCH, count + 1)
    return _joined(HEAD.pack(correlation_id, 0, 0, session_id), topics)


def _read(each: LanePartition, left_bytes: int, is_first: bool) -> LogSlice | None:
    """Return the records that the follower lacks; None if not even one batch may fit, except for the first partition.

    Raises BrokerError.
    """
    wanted, log = each.fetched.wanted, each.partition.log
    most_bytes = min(wanted.partition_max_bytes, left_bytes)
    records: LogSlice = log.read(
        wanted.fetch_offset, most_bytes, upper_bound_offset=log.log_end_offset, at_least_one=is_first
    )
    if is_first or records.size_bytes < most_bytes:
        return records
    records.release()
    return None


def _entry(each: LanePartition, records: LogSlice | None) -> list[Any]:
    """Return the pieces of a partition in the answer, of which one may be a part of its log."""
    log = each.partition.log
    high_watermark, stable_offset = log.high_watermark, log.last_stable_offset
    state = PARTITION.pack(each.partition.index, 0, high_watermark, stable_offset, log.log_start_offset, 0, -1)
    if records is None or not records.size_bytes:
        return [state + NO_RECORDS]
    runs = tag_runs_of(records).encode()
    length = encode_unsigned_varint(len(runs) + 1)
    tags = TAG_RUNS + encode_unsigned_varint(len(length) + len(runs)) + length + runs
    state += encode_unsigned_varint(records.size_bytes + 1)
    if records.size_bytes > COPIED_BYTES:
        return [state, FileSlice(records), tags]
    data = records.read()
    records.release()
    return [state, data, tags]


def _joined(head: bytes, topics: list[tuple[bytes, list[list[Any]]]]) -> Answer:
    parts: list[Any] = []
    pieces = [head, encode_unsigned_varint(len(topics) + 1)]
    for topic_id, entries in topics:
        pieces.append(topic_id)
        pieces.append(encode_unsigned_varint(len(entries) + 1))
        for entry in entries:
            for piece in entry:
                if isinstance(piece, bytes):
                    pieces.append(piece)
                else:
                    parts.append(b"".join(pieces))
                    parts.append(piece)
                    pieces = []
        pieces.append(b"\0")
    pieces.append(b"\0")
    parts.append(b"".join(pieces))
    return parts
