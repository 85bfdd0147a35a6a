"""Plain Fetch requests that wait for records: the bytes of the request are kept, and the lane answers them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from ..replicas.fetching.purgatory import Purgatory
from ..replicas.partition import Partition
from ..server.client_connection import ClientConnection
from ..server.outcome import Outcome
from ..server.parts import Answer
from ..server.pending import Pending
from ..server.request_header_cy import Header
from .plain_fetch_lane_cy import PlainFetchLane

if TYPE_CHECKING:
    from ..replicas.fetching.partitions_at_rest import PartitionsAtRest

MAX_WAIT_AT = 4
"""The position of ``max_wait_ms`` in the body of a request, in the versions of the lane."""
MAX_WAIT_BYTES = 4

Handle = Callable[[Header, memoryview, ClientConnection], Outcome[Answer | None]]
"""Answers a request with the declared codec and the handler of its API."""


class DelayedPlainFetch:
    """A plain Fetch request without enough records for an answer (`purgatory.FetchAttempts`).

    A request that is no longer plain, since its partition has another leader for instance, is given to the handler with
    the rest of its waiting time.
    """

    at_rest: PartitionsAtRest | None = None
    is_of_follower = False

    def __init__(
        self, lane: PlainFetchLane, header: Header, frame: memoryview, client: ClientConnection, handle: Handle
    ) -> None:
        """Take the request that the lane has just found to have too few records."""
        self._lane = lane
        self._header = header
        # The connection's buffer receives other bytes meanwhile.
        self._frame = bytearray(frame)
        self._client = client
        self._handle = handle
        self._deadline = trio.current_time() + lane.max_wait_ms / 1000
        self.missing_bytes = lane.missing_bytes
        self.partitions: list[Partition] = list(lane.found)

    def delayed(self, purgatory: Purgatory) -> Pending[Any]:
        """Return the answer, which is pending in the purgatory."""
        return purgatory.delay(self, self._deadline)

    def try_again(self, *, has_changed: bool, is_last: bool) -> Outcome[Answer | None]:
        """Return the outcome of the request, None if there are not enough records and ``is_last`` is not set."""
        header, lane = self._header, self._lane
        left_s = self._deadline - trio.current_time()
        is_last = is_last or left_s <= 0
        frame = memoryview(self._frame)
        version, correlation_id = header.api_version, header.correlation_id
        answer = lane.answer(frame, header.end, version, correlation_id, self._client, is_last)
        if answer is not None:
            return answer
        if lane.missing_bytes > 0:
            self.missing_bytes = lane.missing_bytes
            self.partitions = list(lane.found)
            return None
        left_ms = 0 if is_last else int(left_s * 1000)
        at = header.end + MAX_WAIT_AT
        self._frame[at : at + MAX_WAIT_BYTES] = left_ms.to_bytes(MAX_WAIT_BYTES, "big")
        return self._handle(header, frame, self._client)
