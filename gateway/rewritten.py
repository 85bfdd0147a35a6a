"""Answers that name brokers, rewritten for clients; the last large ones are kept, as clients get the same ones again.

Metadata of 10,000 partitions takes tens of milliseconds to decode and to encode. A worker thread does so, one answer at
a time: other clients are served meanwhile, and clients that wait for the same answer find it kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import trio

from ..broker.server.client_connection import Address, ClientConnection
from ..broker.server.parts import BUFFERS, Answer
from ..broker.server.worker_threads import run_in_worker
from ..protocol.apis import AnyApiKey
from ..protocol.schema import Message
from .addresses import Addresses, has_brokers, rewrite_brokers
from .frames import CORRELATION_ID, answer_parts, read_answer

CONTROLLERS = 2
"""The endpoint type of DescribeCluster for controllers (KIP-919), which no gateway stands in front of."""
LEAST_KEPT_BYTES = 32 * 1024
"""The size from which on an answer is kept: a smaller one takes about a millisecond."""
MOST_KEPT_BYTES = 4 * 1024 * 1024
"""The largest answer that is kept."""
MOST_KEPT = 2


class _Kept(NamedTuple):
    """An answer without its correlation id, and what a client gets instead."""

    version: tuple[AnyApiKey, int]
    place: Address | None
    found: bytes
    given: bytes
    state: int
    """The state of the gateway's knowledge, of which the answer was a part."""


class RewrittenAnswers:
    """The answers of a gateway that name brokers."""

    def __init__(self, addresses: Addresses, state: Callable[[], int]) -> None:
        """Take ``state``, which returns another number after each change of what `answer` lets others learn."""
        self._addresses = addresses
        self._state = state
        self._kept: deque[_Kept] = deque(maxlen=MOST_KEPT)
        self._making = trio.Lock()
        """Held while a large answer is made."""

    async def answer(
        self,
        key: AnyApiKey,
        version: int,
        found: bytes,
        client: ClientConnection,
        learn: Callable[[Message], None],
    ) -> Answer:
        """Return an answer with the addresses and node ids that the client knows; ``learn`` is called with it before.

        Raises DecodeError.
        """
        if not has_brokers(key, version):
            return [found]
        if len(found) < LEAST_KEPT_BYTES:
            response = read_answer(key, version, found)
            learn(response)
            return self._rewritten(key, version, found, response, client)
        place = self._addresses.address(0, client)
        body = found[CORRELATION_ID.size :]
        async with self._making:
            given = self._kept_answer((key, version), place, body)
            if given is None:
                response = await run_in_worker(read_answer, key, version, found)
                learn(response)
                state = self._state()
                given = await run_in_worker(self._rewritten_body, key, version, found, response, client)
                if len(found) <= MOST_KEPT_BYTES:
                    self._kept.append(_Kept((key, version), place, body, given, state))
        return [found[: CORRELATION_ID.size], given]

    def _kept_answer(self, version: tuple[AnyApiKey, int], place: Address | None, body: bytes) -> bytes | None:
        """Return what a client got instead of the same answer, if nothing has changed since then."""
        for kept in self._kept:
            if kept[:3] == (version, place, body) and kept.state == self._state():
                return kept.given
        return None

    def _rewritten_body(
        self, key: AnyApiKey, version: int, found: bytes, response: Message, client: ClientConnection
    ) -> bytes:
        """Return the rewritten answer without its correlation id, all in one piece."""
        parts = self._rewritten(key, version, found, response, client)
        return b"".join(part for part in parts if isinstance(part, BUFFERS))[CORRELATION_ID.size :]

    def _rewritten(
        self, key: AnyApiKey, version: int, found: bytes, response: Message, client: ClientConnection
    ) -> Answer:
        if getattr(response, "endpoint_type", None) != CONTROLLERS and rewrite_brokers(
            response, version, self._addresses, client
        ):
            (correlation_id,) = CORRELATION_ID.unpack_from(found)
            return answer_parts(key, version, correlation_id, response)
        return [found]
