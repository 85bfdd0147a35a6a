"""Fetch: from one broker to a new consumer as a stream; from several brokers, or for an old consumer, held and merged.

What is held is bounded by `gregor.gateway.buffer.memory`, as upstream is asked for no more: an answer begins with its
length, and so its parts must be known before the first byte is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial

import trio

from ...broker.conversion.conversion_pool import ConversionPool
from ...broker.conversion.readable_formats import FIRST_VERSION_WITH_ZSTD, LAST_VERSION_OF_V1
from ...broker.server.client_connection import ClientConnection, ClientGoneError, UnanswerableError
from ...broker.server.parts import Answer
from ...broker.server.pending import Pending
from ...broker.server.request_header_cy import Header
from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from ...protocol.refusals import merge, refused
from ..addresses import Addresses, rewrite_brokers
from ..frames import answer_parts, read_request, request_frame
from ..link import Link
from ..offered import upstream_version
from ..routing.router import ANY, Router
from ..sessions import Session
from ..stream import LinkLostError, Stream
from ..upstream import UnreachableError, Upstream
from .ahead import FetchAhead, SentAhead, leave_out_passed
from .asked_places import NO_SESSION, NO_SESSION_EPOCH, part_of, places_of, wanted_bytes
from .buffer_memory import BufferMemory, Hold
from .converted import AnswerEnd, FetchConversion, Place
from .passed import PassedFetches, decoded_fetch

SLICE_MS = 100
"""The time for which several brokers are asked to wait for records. A broker that has records answers at once, but the
client's answer waits for all brokers."""
PARTITION_OVERHEAD_BYTES = 512
"""More bytes than a partition takes in an answer besides its batches: the largest name of a topic has 249."""
MOST_EMPTY_ROUNDS = 8
"""The number of skips of batches without a record for an old consumer, before the consumer gets an empty answer."""


class Fetches:
    """The fetches of all clients of a gateway."""

    def __init__(
        self,
        upstream: Upstream,
        router: Router,
        addresses: Addresses,
        conversions: ConversionPool,
        memory: BufferMemory,
        zstd_refused: Callable[[ClientConnection], None],
        *,
        is_read_committed: bool,
    ) -> None:
        """Take ``zstd_refused``, which counts a partition that was refused because its client does not read zstd."""
        self._upstream = upstream
        self._router = router
        self._addresses = addresses
        self._conversions = conversions
        self._memory = memory
        self._zstd_refused = zstd_refused
        self._is_read_committed = is_read_committed
        self.passed = PassedFetches(upstream, addresses)
        """The fetches whose answers are passed on as they are."""

    async def answer(self, version: int, header: Header, frame: memoryview, session: Session) -> Answer:
        """Answer a Fetch that goes upstream in ``version``.

        Raises LinkLostError, UnreachableError, DecodeError, UnanswerableError or ClientGoneError.
        """
        only = session.only_node
        is_converted = self._is_converted(header.api_version, version)
        if only is not None and not is_converted:
            return await self.passed.stream(version, frame, session, await session.link(only))
        request = read_request(ApiKey.FETCH, header, frame)
        assert isinstance(request, FetchRequest)
        if only is not None:
            return await self._held(version, header, request, {only: places_of(request)}, session)
        by_place = await self._router.leaders(request)
        places: dict[int, dict[Place, FetchPartition]] = {}
        for place, part in places_of(request).items():
            places.setdefault(by_place.get(place, ANY), {})[place] = part
        places = places or {ANY: {}}
        if len(places) > 1 and ANY in places:
            # A link takes one fetch at a time, so the broker that answers for these is one of the others.
            unknown = places.pop(ANY)
            next(iter(places.values())).update(unknown)
        # Fetch sessions and racks concern one broker; these partitions may be at several.
        request.session_id, request.session_epoch, request.rack_id = NO_SESSION, NO_SESSION_EPOCH, ""
        request.forgotten_topics_data = []
        if len(places) != 1 or is_converted:
            return await self._held(version, header, request, places, session)
        (node,) = places
        try:
            link = await self._link(session, node)
            rewritten = request_frame(ApiKey.FETCH, version, header, request)
            return await self.passed.stream(version, memoryview(rewritten), session, link)
        except (LinkLostError, UnreachableError):
            self._upstream.forget_leaders(name for name, _ in by_place)
            return answer_parts(ApiKey.FETCH, header.api_version, header.correlation_id, _refusal(version, request))

    def pass_on_now(self, version: int, frame: memoryview, session: Session) -> Pending[Answer] | None:
        """Send a request on whose answer is passed on as it is, without a task; return None if it needs one."""
        return None if self._is_converted(version, version) else self.passed.pass_on_now(version, frame, session)

    def _is_converted(self, api_version: int, version: int) -> bool:
        """Return whether records that upstream sends in ``version`` are converted for a client of ``api_version``."""
        if api_version < FIRST_VERSION_WITH_ZSTD and self._conversions.zstd_codec is not None:
            return True
        return api_version <= LAST_VERSION_OF_V1 < version

    async def _link(self, session: Session, node: int) -> Link:
        return await (session.home() if node == ANY else session.link(node))

    # --- answers that are held

    async def _held(
        self,
        version: int,
        header: Header,
        request: FetchRequest,
        places: dict[int, dict[Place, FetchPartition]],
        session: Session,
    ) -> Answer:
        """Fetch from each broker what memory there is for, and merge the answers."""
        is_converted = self._is_converted(header.api_version, version)
        if is_converted and self._conversions.zstd_codec is not None:
            # A broker refuses topics of zstd to older versions.
            newest = upstream_version(ApiKey.FETCH, FIRST_VERSION_WITH_ZSTD, await session.versions())
            version = max(version, newest or version)
        deadline = trio.current_time() + max(request.max_wait_ms, 0) / 1000
        asked = {place: part for own in places.values() for place, part in own.items()}
        session.pass_over(asked)
        ahead = _fetch_ahead(session) if is_converted else None
        is_ahead_due = ahead is not None and ahead.is_due(asked)
        early = None if ahead is None else await self._sent_ahead(ahead, version, request, asked, session)
        hold = await self._memory.take(wanted_bytes(request)) if early is None else early[1]
        session.on_end = hold.release
        is_waiting = len(places) == 1
        next_offsets: Mapping[Place, int] = {}
        rounds = 0
        while True:
            if early is not None:
                found, early = early[0], None
            else:
                rest_ms = max(int((deadline - trio.current_time()) * 1000), 0)
                wait_ms = rest_ms if len(places) == 1 else min(rest_ms, SLICE_MS)
                found, hold = await self._round(
                    version, header, request, places, session, hold, wait_ms if is_waiting else 0
                )
                session.on_end = hold.release
            size_bytes = _records_bytes(found)
            if is_converted:
                conversion = FetchConversion(
                    header.api_version,
                    self._conversions,
                    (session.client.down_conversion,),
                    partial(self._zstd_refused, session.client),
                    None if ahead is None else ahead.next_offset,
                )
                empty = await conversion.convert(found, asked)
                session.skip(empty, asked)
                next_offsets = conversion.next_offsets
                rounds += 1
                if empty and rounds < MOST_EMPTY_ROUNDS and _is_without_records(found):
                    hold.release()
                    hold = await self._memory.take(wanted_bytes(request))
                    session.on_end = hold.release
                    continue
            if size_bytes >= max(request.min_bytes, 1) or _has_error(found) or trio.current_time() >= deadline:
                break
            if len(places) == 1 and is_waiting:
                break
            is_waiting = True
        is_full = 2 * size_bytes >= min(hold.size_bytes, wanted_bytes(request))
        if ahead is not None and is_ahead_due and next_offsets and is_full:
            await self._send_ahead(ahead, version, header, request, places, next_offsets, session)
        if found.node_endpoints:
            rewrite_brokers(found, header.api_version, self._addresses, session.client)
        parts = answer_parts(ApiKey.FETCH, header.api_version, header.correlation_id, found)
        return [*parts, AnswerEnd(session.release)]

    async def _sent_ahead(
        self,
        ahead: FetchAhead,
        version: int,
        request: FetchRequest,
        asked: Mapping[Place, FetchPartition],
        session: Session,
    ) -> tuple[FetchResponse, Hold] | None:
        """Return the answer to the fetch that was sent ahead if it has records for this one, and its memory."""
        taken = await ahead.take(version, request, asked, session.client.hangup)
        if taken is None:
            return None
        frames, hold = taken
        self._memory.needed(hold)
        session.on_end = hold.release
        found = _merged([decoded_fetch(version, frame) for frame in frames])
        leave_out_passed(found, asked)
        if _has_error(found) or _is_without_records(found):
            hold.release()
            return None
        return found, hold

    async def _send_ahead(
        self,
        ahead: FetchAhead,
        version: int,
        header: Header,
        request: FetchRequest,
        places: Mapping[int, Mapping[Place, FetchPartition]],
        next_offsets: Mapping[Place, int],
        session: Session,
    ) -> None:
        """Send the client's next fetch to each broker, if there is memory for the answers."""
        hold = self._memory.take_spare(wanted_bytes(request), ahead.drop)
        if hold is None:
            return
        later = {node: {place: copy(part) for place, part in own.items()} for node, own in places.items()}
        asked = {place: part for own in later.values() for place, part in own.items()}
        for place, next_offset in next_offsets.items():
            asked[place].fetch_offset = next_offset
        streams: dict[Link, Stream] = {}
        share_bytes = hold.size_bytes // len(places)
        is_sent = False
        try:
            for node, parts in later.items():
                link = await self._link(session, node)
                batches_bytes = max(share_bytes - len(parts) * PARTITION_OVERHEAD_BYTES, 1)
                own = self._asked_of(request, parts, header, batches_bytes, first=session.next_first())
                streams[link] = await link.start_stream(request_frame(ApiKey.FETCH, version, header, own))
            is_sent = True
        except (LinkLostError, UnreachableError):
            pass
        finally:
            if streams:
                ahead.put(SentAhead(streams, hold, version, request, asked, trio.current_time()))
            if not is_sent:
                hold.release()

    async def _round(
        self,
        version: int,
        header: Header,
        request: FetchRequest,
        places: dict[int, dict[Place, FetchPartition]],
        session: Session,
        hold: Hold,
        wait_ms: int,
    ) -> tuple[FetchResponse, Hold]:
        """Ask each broker once; return the merged response and the memory that it takes."""
        streams: dict[int, Stream] = {}
        refusals: list[FetchResponse] = []
        share_bytes = hold.size_bytes // len(places)

        async def begin(node: int) -> None:
            own = self._asked_of(request, places[node], header, share_bytes, first=session.next_first())
            own.max_wait_ms, own.min_bytes = wait_ms, min(request.min_bytes, share_bytes)
            try:
                link = await self._link(session, node)
                asked_frame = request_frame(ApiKey.FETCH, version, header, own)
                streams[node] = await link.begin_stream(asked_frame, session.client.hangup)
            except (LinkLostError, UnreachableError):
                if session.only_node is None:
                    self._upstream.forget_leaders(name for name, _ in places[node])
                    refusals.append(_refusal(version, own))
            except ClientGoneError:
                # The nursery would put an exception into a group; the caller finds the stream missing.
                return

        try:
            async with trio.open_nursery() as nursery:
                for node in places:
                    nursery.start_soon(begin, node)
            if len(streams) + len(refusals) < len(places):
                if session.client.hangup.is_set():
                    raise ClientGoneError("disconnected while its request was pending")
                raise UnanswerableError("the broker of this port does not answer Fetch")
            total_bytes = sum(stream.size for stream in streams.values())
            if total_bytes > hold.size_bytes:
                # A broker returns the first batch whole, however large it is (KIP-74).
                hold.release()
                hold = await self._memory.take_exactly(total_bytes)
                session.on_end = hold.release
            responses = [decoded_fetch(version, await stream.read_all()) for stream in streams.values()]
        finally:
            for stream in streams.values():
                stream.end()
        whole = _merged([*responses, *refusals])
        self.passed.heed(whole, session)
        return whole, hold

    def _asked_of(
        self, request: FetchRequest, places: Mapping[Place, FetchPartition], header: Header, max_bytes: int, first: int
    ) -> FetchRequest:
        """Return the request for one broker, which does not wait; see `part_of`."""
        own = part_of(request, places, first=first)
        own.max_wait_ms, own.min_bytes, own.max_bytes = 0, 1, max_bytes
        if header.api_version <= LAST_VERSION_OF_V1:
            own.isolation_level = int(self._is_read_committed)
        return own


def _fetch_ahead(session: Session) -> FetchAhead:
    if not isinstance(session.ahead, FetchAhead):
        session.ahead = FetchAhead()
    return session.ahead


def _merged(responses: list[FetchResponse]) -> FetchResponse:
    whole, *others = responses
    for other in others:
        merge(whole, other)
    return whole


def _refusal(version: int, request: FetchRequest) -> FetchResponse:
    """Return the answer of a leader that cannot be reached."""
    response = refused(request, FetchResponse, version, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert isinstance(response, FetchResponse)
    return response


def _records_bytes(response: FetchResponse) -> int:
    return sum(
        len(part.records)
        for topic in response.responses
        for part in topic.partitions
        if isinstance(part.records, bytes | memoryview)
    )


def _is_without_records(response: FetchResponse) -> bool:
    return not any(part.records for topic in response.responses for part in topic.partitions)


def _has_error(response: FetchResponse) -> bool:
    return bool(response.error_code) or any(
        part.error_code for topic in response.responses for part in topic.partitions
    )
