"""A lane for the Fetch requests of a busy follower: from the bytes of a request to the bytes of its answer.

A follower that copies a few records at a time sends nearly equal requests: they name the partitions to which it has
appended, in a session that has all others. `FollowerLane` takes the steps of `sessions.py`, `reading.py` and
`purgatory.py` for such a request without looking at any other partition, and leaves each other request, with nothing
done, to them. That look at all partitions is due at least twice a second, as for an idle follower: some of what a
follower is told, such as a log start offset, changes without an event.

This is ordinary Python that is also compiled: ``follower_lane_cy.pxd`` has the C types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

try:
    import cython
except ImportError:
    from ....protocol.records import cython_stand_in as cython

from ....protocol.apis import ApiKey
from ....protocol.errors import BrokerError
from ....protocol.fetch_session import MAX_EPOCH
from ...server.pending import Pending

if not cython.compiled:
    from ....protocol.records.message_bytes import int32_at, int64_at
    from ....storage.log.appendable_log_cy import AppendableLog
    from .lane_answers_cy import LanePartition, answer_with, empty_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...monitoring.metrics import Metrics
    from ...quotas.enforcement import ClientQuotas
    from ...server.client_connection import ClientConnection
    from ...server.parts import Answer
    from ...server.timers import Timer
    from ..partition import Partition
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
            return empty_answer(self._correlation_id, self._session.session_id)
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
        self._active = kept + moved
        if not has_records and not is_last:
            return None
        self._session.has_idled = not found
        try:
            return answer_with(
                found,
                self._active,
                self._correlation_id,
                self._session.session_id,
                self._limits.max_bytes,
                self._metrics,
            )
        except BrokerError:
            # The next Fetch looks at all partitions, and gets the error. Nothing of this answer was sent.
            for each in found:
                each.fetched.known_high_watermark = -1
            self.end()
            return empty_answer(self._correlation_id, self._session.session_id)

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
            pending.complete(empty_answer(self._correlation_id, self._session.session_id))
