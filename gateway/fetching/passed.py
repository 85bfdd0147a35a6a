"""Fetches whose answers are passed on as one broker gives them, but for the addresses of new leaders (KIP-951).

A small answer is passed on when it has arrived, without a task; a large one while it arrives.
"""

from __future__ import annotations

from ...broker.server.client_connection import UnanswerableError
from ...broker.server.parts import Answer, Buffer
from ...broker.server.pending import Pending
from ...protocol.apis import ApiKey
from ...protocol.errors import DecodeError
from ...protocol.messages.fetch import FetchResponse
from ..addresses import Addresses, rewrite_brokers
from ..frames import CORRELATION_ID, answer_parts, read_answer
from ..link import MOST_WHOLE_BYTES, Link
from ..routing.router import STALE_LEADER_CODES, topic_text
from ..sessions import Session
from ..stream import Stream
from ..upstream import Upstream
from . import leader_hints
from .leader_hints import HintScanner
from .streamed import StreamedAnswer, StreamMemory


class PassedFetches:
    """The fetches of all clients of a gateway that one broker answers as the client asks."""

    def __init__(self, upstream: Upstream, addresses: Addresses) -> None:
        self._upstream = upstream
        self._addresses = addresses
        self._stream_memory = StreamMemory()

    def pass_on_now(self, version: int, frame: memoryview, session: Session) -> Pending[Answer] | None:
        """Send a request on whose answer is passed on while it arrives, without a task; return None if it needs one."""
        node = session.only_node
        link = None if node is None else session.link_now(node)
        if link is None or not link.is_idle:
            return None
        served = link.offered.get(ApiKey.FETCH)
        if served is None or not served[0] <= version <= served[1]:
            return None
        pending: Pending[Answer] = Pending(ends_with_client=True)

        def give(found: memoryview | None) -> None:
            try:
                if found is None:
                    raise UnanswerableError(f"FETCH v{version} is unanswered: broker {node} closed the connection")
                pending.complete(self._whole(version, found, session))
            except UnanswerableError as error:
                pending.fail(error)

        def give_stream(stream: Stream) -> None:
            pending.complete(self._streamed(version, stream, session))

        link.pass_on_fetch(frame, give, give_stream)
        return pending

    async def stream(self, version: int, frame: memoryview, session: Session, link: Link) -> Answer:
        """Send a request and pass its answer on while it arrives.

        Raises LinkLostError, UnanswerableError or ClientGoneError.
        """
        stream = await link.begin_stream(frame, session.client.hangup)
        if stream.size > MOST_WHOLE_BYTES:
            return self._streamed(version, stream, session)
        session.on_end = stream.end
        found = await stream.read_all()
        session.release()
        return self._whole(version, found, session)

    def _streamed(self, version: int, stream: Stream, session: Session) -> Answer:
        """Return an answer that is passed on while it arrives."""
        session.on_end = stream.end
        if version < leader_hints.FIRST_VERSION:
            return [StreamedAnswer(stream, self._stream_memory)]
        hints = HintScanner(stream.remaining, version, self._addresses, session.client)
        return [StreamedAnswer(stream, self._stream_memory, hints)]

    def _whole(self, version: int, found: Buffer, session: Session) -> Answer:
        """Return an answer that has arrived, with the addresses of its leader hints replaced (KIP-951)."""
        if version < leader_hints.FIRST_VERSION:
            return [bytes(found)]
        response = decoded_fetch(version, found)
        self.heed(response, session)
        if response.node_endpoints and rewrite_brokers(response, version, self._addresses, session.client):
            (correlation_id,) = CORRELATION_ID.unpack_from(found)
            return answer_parts(ApiKey.FETCH, version, correlation_id, response)
        return [bytes(found)]

    def heed(self, response: FetchResponse, session: Session) -> None:
        """Forget the leaders of topics of which a broker has answered that it is not."""
        if session.only_node is None:
            self._upstream.forget_leaders(
                topic.topic or topic_text(topic.topic_id)
                for topic in response.responses
                if any(part.error_code in STALE_LEADER_CODES for part in topic.partitions)
            )


def decoded_fetch(version: int, frame: Buffer) -> FetchResponse:
    """Return the answer in a frame. Raises UnanswerableError if the frame is malformed."""
    try:
        response = read_answer(ApiKey.FETCH, version, frame)
    except DecodeError as error:
        raise UnanswerableError(f"upstream's answer to Fetch v{version} is malformed: {error}") from error
    assert isinstance(response, FetchResponse)
    return response
