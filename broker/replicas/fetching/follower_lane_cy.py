"""A lane for the Fetch requests of a busy follower: from the bytes of a request to the bytes of its answer.

A follower that copies a few records at a time sends nearly equal requests: they name the partitions to which it has
appended, in a session that has all others. `FollowerLane` takes the steps of `sessions.py`, `reading.py` and
`purgatory.py` for such a request without looking at any other partition, and leaves each other request, with nothing
done, to them. That look at all partitions is due at least twice a second, as for an idle follower: some of what a
follower is told, such as a log start offset, changes without an event.

This is ordinary Python that is also compiled: ``follower_lane_cy.pxd`` has the C types.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

import trio

try:
    import cython
except ImportError:
    from ....protocol.records import cython_stand_in as cython

from ....protocol.apis import ApiKey
from ....protocol.codec import encode
from ....protocol.errors import BrokerError
from ....protocol.fetch_session import MAX_EPOCH
from ....protocol.messages.fetch import FetchRequest
from ....protocol.unsigned_varint import encode_unsigned_varint
from ....storage.index.copied_tags import tag_runs_of
from ...server.parts import FileSlice
from ...server.pending import Pending
from ...server.transport import COPIED_BYTES
from ..partition import Partition

if not cython.compiled:
    from ....protocol.records.message_bytes import int32_at, int64_at
    from ....storage.log.appendable_log_cy import AppendableLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ....storage.log.log_slice import LogSlice
    from ...monitoring.metrics import Metrics
    from ...quotas.enforcement import ClientQuotas
    from ...server.client_connection import ClientConnection
    from ...server.parts import Answer
    from ...server.timers import Timer
    from ..replication.leadership import Leadership
    from .purgatory import Purgatory
    from .reading import FetchLimits
    from .sessions import FetchedPartition, FetchSession

FETCH_VERSION = 17
"""The version of a follower's Fetch, the only one that has a lane."""
LOOK_S = 0.4
"""Longest time in seconds between two looks at all partitions; an idle follower's last 500 ms by default."""
LONGEST_SILENCE_MS = 60_000
"""The time without a request after which a follower is taken to have gone."""
FETCH = ApiKey.FETCH
_FETCH_AND_VERSION = FETCH.to_bytes(2, "big") + FETCH_VERSION.to_bytes(2, "big")
_HEAD_AT = 8
"""The place of the client id in a request."""
_MOST_NAMED = 0x7E
_TOPIC_BYTES, _PARTITION_BYTES = 18, 33
_MAX_EPOCH = MAX_EPOCH
_EPOCH_AT, _TOPICS_AT = 17, 21
"""Places in the body of a request; the length of no topics takes one byte."""
INT16 = Struct(">h")
HEAD = Struct(">ixiHi")
"""The start of an answer: correlation id, no tagged fields, throttle time, error, session id."""
PARTITION = Struct(">iHqqqbi")
"""A partition in an answer: index, error, high watermark, last stable offset, log start, no transactions, replica."""
NO_RECORDS = b"\x01\0"
TAG_RUNS = b"\x01\xd4\x8e\x01"
"""The number of tagged fields, and the tag of `gregor_tag_runs`."""


def new_lane(
    session: FetchSession,
    found: Sequence[tuple[FetchedPartition, object]],
    request: FetchRequest,
    limits: FetchLimits,
    client: ClientConnection,
    *,
    purgatory: Purgatory,
    quotas: ClientQuotas,
    metrics: Metrics,
) -> FollowerLane | None:
    """Return a lane for the session of a follower's request; None if it has to look at each request.

    ``found`` are the partitions of the session with what is here: a `Partition`, or an error code.
    """
    partitions = [
        (fetched, partition)
        for fetched, partition in found
        if isinstance(partition, Partition) and partition.leadership is not None
    ]
    is_usual = request.gregor_with_tag_runs and not (request.gregor_with_tags or request.gregor_as_stored)
    if len(partitions) < len(session.partitions) or not is_usual or request.min_bytes > 1 or request.isolation_level:
        return None
    empty = FetchRequest(
        replica_state=request.replica_state,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        session_id=session.session_id,
        rack_id=request.rack_id,
        gregor_with_tag_runs=True,
    )
    body = encode(empty, FETCH_VERSION)
    client_id = client.client_id_bytes or b""
    length = -1 if client.client_id is None else len(client_id)
    return FollowerLane(
        session,
        partitions,
        limits,
        client,
        max_wait_s=request.max_wait_ms / 1000,
        before_epoch=INT16.pack(length) + client_id + b"\0" + body[:_EPOCH_AT],
        after_topics=body[_TOPICS_AT + 1 :],
        purgatory=purgatory,
        quotas=quotas,
        metrics=metrics,
    )


class LanePartition:
    """A partition of a session, which tells the lane of its appends and changes (a `PartitionWaiter`)."""

    def __init__(self, lane: FollowerLane, fetched: FetchedPartition, partition: Partition, role: Leadership) -> None:
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


class FollowerLane:
    """A lane for one follower's session on one connection, as long as its partitions stay the same."""

    def __init__(
        self,
        session: FetchSession,
        partitions: list[tuple[FetchedPartition, Partition]],
        limits: FetchLimits,
        client: ClientConnection,
        *,
        max_wait_s: float,
        before_epoch: bytes,
        after_topics: bytes,
        purgatory: Purgatory,
        quotas: ClientQuotas,
        metrics: Metrics,
        now_s: Callable[[], float] = trio.current_time,
    ) -> None:
        """Watch the partitions, all of which this broker leads.

        ``before_epoch`` are the bytes of a request from its client id to its session id, ``after_topics`` those behind
        its topics.
        """
        self._session = session
        self._limits = limits
        self._replica_id = limits.replica_id
        self._client = client
        self._max_wait_s = max_wait_s
        self._before_epoch = before_epoch
        self._after_topics = after_topics
        self._purgatory = purgatory
        self._quotas = quotas
        self._metrics = metrics
        self._now_s = now_s
        self._look_at = now_s() + LOOK_S
        self._partitions: dict[tuple[bytes, int], LanePartition] = {}
        self._active: list[LanePartition] = []
        self._named: list[LanePartition] = []
        self._named_at: list[int] = []
        """The partitions that a request names, and the places of their positions."""
        self._correlation_id = 0
        self._pending: Pending[Answer] | None = None
        """The answer to the waiting Fetch."""
        self._is_woken = False
        self._is_ended = False
        self.timer: Timer | None = None
        """Goes off at the deadline of the latest Fetch, or before a later one."""
        for fetched, partition in partitions:
            leadership = partition.leadership
            assert leadership is not None
            each = LanePartition(self, fetched, partition, leadership)
            self._partitions[each.topic_id, partition.index] = each
            self._active.append(each)
            partition.watch(each, is_follower=True)

    # --- requests

    def looked(self) -> None:
        """Note that all partitions were looked at."""
        self._look_at = self._now_s() + LOOK_S

    def answer(self, frame: memoryview) -> Answer | Pending[Answer] | None:
        """Take a request of this connection and return its answer; None, with nothing done, if it is not usual."""
        # The frame is given once more for its C type.
        if self._is_ended or self._pending is not None or not self._finds(frame, frame):
            return None
        now_s = self._now_s()
        throttle = self._limits.throttle
        if (
            now_s >= self._look_at
            or self._purgatory.is_stopping
            or self._quotas.is_active
            or (throttle is not None and throttle.is_active)
        ):
            return None
        session = self._session
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        session.used_ms = now_s * 1000
        self._client.request_counts[FETCH, FETCH_VERSION] += 1
        self._take_positions(frame)
        if self._is_ended:
            # A moved high watermark may have changed a partition.
            return self._empty()
        parts = self._parts(False)
        if parts is not None:
            return parts
        pending: Pending[Answer] = Pending(ends_with_client=True, on_cancel=self.leave)
        self._pending = pending
        self._purgatory.hold(self, now_s + self._max_wait_s)
        return pending

    def _finds(self, frame: memoryview, view: memoryview) -> bool:
        """Return whether the request is a usual one, of a follower that has the present leader epochs."""
        if self._client.client_id_bytes is None:
            return False
        before, after = self._before_epoch, self._after_topics
        epoch_at = _HEAD_AT + len(before)
        end = len(frame) - len(after)
        if (
            end < epoch_at + 5
            or frame[:4] != _FETCH_AND_VERSION
            or frame[_HEAD_AT:epoch_at] != before
            or frame[end:] != after
        ):
            return False
        data = cython.address(view[0]) if cython.compiled else view
        if int32_at(data, epoch_at) != self._session.epoch:
            return False
        self._correlation_id = int32_at(data, 4)
        self._named.clear()
        self._named_at.clear()
        topics_left = data[epoch_at + 4] - 1
        at = epoch_at + 5
        if not 0 <= topics_left < _MOST_NAMED:
            return False
        while topics_left:
            if at + _TOPIC_BYTES > end:
                return False
            topic_id = bytes(frame[at : at + 16])
            partitions_left = data[at + 16] - 1
            at += 17
            if not 0 < partitions_left < _MOST_NAMED or at + partitions_left * _PARTITION_BYTES + 1 > end:
                return False
            while partitions_left:
                if not self._is_usual(view, at, topic_id):
                    return False
                at += _PARTITION_BYTES
                partitions_left -= 1
            if data[at] != 0:
                return False
            at += 1
            topics_left -= 1
        return at == end

    def _is_usual(self, view: memoryview, at: int, topic_id: bytes) -> bool:
        """Add the partition at ``at``; return False if its position needs the checks for all requests."""
        data = cython.address(view[0]) if cython.compiled else view
        each = self._partitions.get((topic_id, int32_at(data, at)))
        if each is None:
            return False
        partition = each.partition
        log: AppendableLog = partition.log
        if (
            partition.role is not each.role
            or int32_at(data, at + 4) != partition.leader_epoch
            or int32_at(data, at + 16) != log._epochs.latest
            or not log.log_start_offset <= int64_at(data, at + 8) <= log.log_end_offset
            or int32_at(data, at + 28) != each.fetched.wanted.partition_max_bytes
            or data[at + 32] != 0
            or self._replica_id not in each.role.followers
        ):
            return False
        self._named.append(each)
        self._named_at.append(at)
        return True

    def _take_positions(self, view: memoryview) -> None:
        """Record the positions that the request names, which may advance high watermarks."""
        data = cython.address(view[0]) if cython.compiled else view
        broker_epoch = self._limits.replica_epoch
        for number in range(len(self._named)):
            each = self._named[number]
            at = self._named_at[number]
            wanted = each.fetched.wanted
            offset = wanted.fetch_offset = int64_at(data, at + 8)
            wanted.current_leader_epoch = int32_at(data, at + 4)
            wanted.last_fetched_epoch = int32_at(data, at + 16)
            log_start_offset = wanted.log_start_offset = int64_at(data, at + 20)
            if not each.is_active:
                each.is_active = True
                self._active.append(each)
            each.partition.follower_fetched(
                self._replica_id, offset, log_start_offset=log_start_offset, broker_epoch=broker_epoch
            )

    # --- answers

    def renew(self, topic_id: bytes, index: int) -> None:
        """Note that a request outside of the lane has named a partition of the session."""
        each = self._partitions.get((topic_id, index))
        if each is not None and not each.is_active:
            each.is_active = True
            self._active.append(each)

    def note_append(self, each: LanePartition) -> None:
        """Answer the waiting Fetch soon, as this partition has records for it."""
        if not each.is_active:
            each.is_active = True
            self._active.append(each)
        if self._pending is None:
            if self._now_s() * 1000 > self._session.used_ms + LONGEST_SILENCE_MS:
                self.end()
        elif not self._is_woken:
            self._is_woken = True
            self._purgatory.wake(self)

    def try_again(self, is_last: bool) -> bool:
        """Complete the waiting Fetch if there are records, or if this is the last attempt; return whether it is
        complete."""
        self._is_woken = False
        pending = self._pending
        if pending is None:
            return True
        parts = self._parts(is_last)
        if parts is None:
            return False
        self._pending = None
        pending.complete(parts)
        return True

    def _parts(self, is_last: bool) -> Answer | None:
        """Return the answer; None if there are no records and ``is_last`` is not set."""
        found: list[LanePartition] = []
        kept: list[LanePartition] = []
        moved: list[LanePartition] = []
        has_records = False
        for each in self._active:
            fetched, log = each.fetched, each.partition.log
            end_offset = log.log_end_offset
            lacks_records = fetched.wanted.fetch_offset < end_offset
            if not lacks_records and fetched.known_high_watermark == log.high_watermark == end_offset:
                each.is_active = False
                continue
            if lacks_records:
                has_records = True
                moved.append(each)
                found.append(each)
            else:
                kept.append(each)
                if fetched.known_high_watermark != log.high_watermark:
                    found.append(each)
        # Who gets records now comes last the next time, so that with a small max_bytes every partition gets its turn.
        self._active = kept + moved
        if not has_records and not is_last:
            return None
        self._session.has_idled = not found
        try:
            return self._encoded(found)
        except BrokerError:
            # The next Fetch looks at all partitions, and gets the error.
            self.end()
            return self._empty()

    def _empty(self) -> Answer:
        head = HEAD.pack(self._correlation_id, 0, 0, self._session.session_id)
        return [head + b"\x01\0"]

    def _encoded(self, found: list[LanePartition]) -> Answer:
        """Return the answer with the records and the state of these partitions. Raises BrokerError."""
        metrics = self._metrics
        metrics.fetch_conversions.request_count += 1
        parts: list[Any] = []
        pieces: list[bytes] = []
        topics: list[tuple[bytes, list[list[Any]]]] = []
        entries: list[list[Any]] = []
        topic_id = b""
        remaining_bytes = self._limits.max_bytes
        is_first = True
        count = 0
        for each in found:
            fetched, partition = each.fetched, each.partition
            wanted = fetched.wanted
            log: AppendableLog = partition.log
            records: LogSlice | None = None
            if wanted.fetch_offset < log.log_end_offset:
                most_bytes = min(wanted.partition_max_bytes, remaining_bytes)
                if most_bytes <= 0:
                    continue
                records = partition.log.read(
                    wanted.fetch_offset,
                    most_bytes,
                    upper_bound_offset=log.log_end_offset,
                    at_least_one=is_first,
                )
                if not is_first and records.size_bytes == most_bytes:
                    # The last batch may be cut; its partition is the first one next time.
                    records.release()
                    remaining_bytes = 0
                    continue
                is_first = False
                remaining_bytes -= records.size_bytes
            fetched.known_high_watermark = log.high_watermark
            fetched.known_log_start_offset = log.log_start_offset
            metrics.topics[fetched.topic].fetch_requests += 1
            entry: list[Any] = [
                PARTITION.pack(
                    partition.index,
                    0,
                    log.high_watermark,
                    partition.log.last_stable_offset,
                    log.log_start_offset,
                    0,
                    -1,
                )
            ]
            if records is None or not records.size_bytes:
                entry.append(NO_RECORDS)
            else:
                runs = tag_runs_of(records).encode()
                entry.append(encode_unsigned_varint(records.size_bytes + 1))
                if records.size_bytes <= COPIED_BYTES:
                    entry.append(records.read())
                    records.release()
                else:
                    entry.append(FileSlice(records))
                length = encode_unsigned_varint(len(runs) + 1)
                entry.append(TAG_RUNS + encode_unsigned_varint(len(length) + len(runs)) + length + runs)
            if topic_id == each.topic_id:
                entries.append(entry)
            else:
                topic_id, entries = each.topic_id, [entry]
                topics.append((topic_id, entries))
            count += 1
        if metrics.response_errors is not None:
            metrics.response_errors.add_success(FETCH, count + 1)
        pieces.append(HEAD.pack(self._correlation_id, 0, 0, self._session.session_id))
        pieces.append(encode_unsigned_varint(len(topics) + 1))
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

    # --- the end

    def leave(self) -> None:
        """End, without an answer to the waiting Fetch: its client has disconnected."""
        self._pending = None
        self.end()

    def end(self) -> None:
        """Stop watching, and answer the waiting Fetch: the next one looks at all partitions."""
        if self._is_ended:
            return
        self._is_ended = True
        for each in self._partitions.values():
            each.partition.unwatch(each)
        self._partitions.clear()
        self._active.clear()
        self._purgatory.release(self)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self._session.lane is self:
            self._session.lane = None
        if self._client.lane is self:
            self._client.lane = None
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.complete(self._empty())
