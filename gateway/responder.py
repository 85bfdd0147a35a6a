"""The handling of a client's request: it is passed on, passed on with another answer, or translated."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache, partial
from struct import Struct
from typing import Any

import trio

from ..broker.conversion.conversion_pool import ConversionPool
from ..broker.server.client_connection import ClientConnection, UnanswerableError
from ..broker.server.connection_views import PlainLane
from ..broker.server.described_clients import describe_clients
from ..broker.server.outcome import Outcome
from ..broker.server.parts import BUFFERS, Answer, Buffer
from ..broker.server.pending import Pending
from ..broker.server.request_header_cy import FIXED, Header, parse_header
from ..protocol.apis import AnyApiKey, ApiKey, GregorApiKey, api_key, is_flexible, valid_versions
from ..protocol.errors import DecodeError, ErrorCode
from ..protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ..protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ..protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ..protocol.messages.metadata import MetadataResponse
from ..protocol.messages.produce import ProduceResponse
from ..protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ..protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ..protocol.schema import Message
from ..protocol.unsigned_varint import read_unsigned_varint, skip_tagged_fields
from .addresses import Addresses, has_brokers, rewrite_brokers
from .fetching.buffer_memory import BufferMemory
from .fetching.fetches import Fetches
from .frames import CORRELATION_ID, answer_parts, read_answer, read_request, request_frame
from .link import GATHERED_BYTES, Link
from .offered import offered_versions, upstream_version
from .raw_tokens import raw_tokens
from .reachability import OutageError
from .replayed_login import MECHANISMS
from .rewritten import RewrittenAnswers
from .routing.router import Router
from .routing.routes import ROUTED, TO_ONE_REPLICA
from .sessions import Session, Sessions
from .stream import LinkLostError
from .translations.contract import Translation
from .translations.produce import translate_produce
from .translations.table import TRANSLATIONS
from .upstream import UnreachableError, Upstream

logger = logging.getLogger(__name__)

BROKER_RESOURCES = (4, 8)
"""The resource types of brokers and of their loggers (Kafka: ConfigResource.Type)."""
FIRST_VERSION_OF_PRODUCE_WITH_TRANSACTIONS = 3
INT16 = Struct(">h")


class Responder:
    """A responder for the clients of a gateway (the `Responder` of its connections)."""

    def __init__(
        self,
        sessions: Sessions,
        upstream: Upstream,
        addresses: Addresses,
        conversions: ConversionPool,
        memory: BufferMemory,
        *,
        is_read_committed: bool,
        codec_threads: int,
    ) -> None:
        self._sessions = sessions
        self._upstream = upstream
        self._addresses = addresses
        self._router = Router(upstream)
        self._rewritten = RewrittenAnswers(addresses, lambda: upstream.leaders_state)
        self._fetches = Fetches(
            upstream,
            self._router,
            addresses,
            conversions,
            memory,
            sessions.zstd_refused,
            is_read_committed=is_read_committed,
        )
        produce = partial(translate_produce, limiter=trio.CapacityLimiter(codec_threads))
        self._translations: Mapping[AnyApiKey, Translation] = {**TRANSLATIONS, ApiKey.PRODUCE: produce}

    # --- requests that are passed on without a task

    plain_lane: PlainLane | None = None
    """No request is answered without its broker."""

    def is_pipelined(self, frame: memoryview, client: ClientConnection) -> bool:
        """Return whether the request is passed on: the broker upstream answers such requests in their order."""
        return self._link_now(frame, client) is not None

    def answer(self, frame: memoryview, client: ClientConnection) -> Outcome[Answer | None]:
        """Answer one request; the result is None if the client expects no answer.

        Raises UnanswerableError, DecodeError or ClientGoneError, as may the outcome.
        """
        link = self._link_now(frame, client)
        if link is not None:
            return self._pass_on_now(frame, client, link)
        return self._pass_fetch_on_now(frame, client) or self._answer_in_task(frame, client)

    def _link_now(self, frame: memoryview, client: ClientConnection) -> Link | None:
        """Return the link for a request that goes to one broker as it is, and whose answer does; None for any other."""
        size_bytes = len(frame)
        if not FIXED.size <= size_bytes <= GATHERED_BYTES:
            return None
        key, version, _, client_id_length = FIXED.unpack_from(frame)
        if key == ApiKey.FETCH:
            return None
        session = self._sessions.session(client)
        if session.raw_tokens:
            return None
        node = session.only_node
        if node is None and key == ApiKey.PRODUCE and _passes_as_it_is(key, version):
            node = self._router.only_leader(read_request(ApiKey.PRODUCE, parse_header(frame), frame))
        link = None if node is None else session.link_now(node)
        if link is None:
            return None
        served = link.offered.get(key)
        if served is None or not served[0] <= version <= served[1] or not _passes_as_it_is(key, version):
            return None
        position = FIXED.size + max(client_id_length, 0)
        if bytes(frame[FIXED.size : position]) != client.client_id_bytes:
            return None
        return link

    def _pass_on_now(self, frame: memoryview, client: ClientConnection, link: Link) -> Pending[Answer] | None:
        key, version, _, client_id_length = FIXED.unpack_from(frame)
        position = FIXED.size + max(client_id_length, 0)
        client.request_counts[key, version] += 1
        if key == ApiKey.PRODUCE and not _produce_has_answer(frame, position, version):
            link.pass_on(frame, None)
            return None
        pending: Pending[Answer] = Pending()
        give = partial(_give, pending, client)
        if key == ApiKey.PRODUCE and has_brokers(ApiKey.PRODUCE, version):
            give = partial(self._give_produced, give, version, client)
        link.pass_on(frame, give)
        return pending

    def _pass_fetch_on_now(self, frame: memoryview, client: ClientConnection) -> Pending[Answer] | None:
        """Send a Fetch on whose answer is passed on; return None if it needs a task."""
        if not FIXED.size <= len(frame) <= GATHERED_BYTES:
            return None
        key, version, _, client_id_length = FIXED.unpack_from(frame)
        position = FIXED.size + max(client_id_length, 0)
        if key != ApiKey.FETCH or bytes(frame[FIXED.size : position]) != client.client_id_bytes:
            return None
        session = self._sessions.session(client)
        if session.raw_tokens:
            return None
        session.release()
        pending = self._fetches.pass_on_now(version, frame, session)
        if pending is not None:
            client.request_counts[key, version] += 1
        return pending

    def _give_produced(
        self, give: Callable[[Buffer | None], None], version: int, client: ClientConnection, answer: memoryview | None
    ) -> None:
        """Give an answer to Produce with the addresses of its leader hints replaced (KIP-951)."""
        if answer is not None:
            response = read_answer(ApiKey.PRODUCE, version, answer)
            assert isinstance(response, ProduceResponse)
            self._router.heed(ApiKey.PRODUCE, version, response, response)
            if response.node_endpoints and rewrite_brokers(response, version, self._addresses, client):
                (correlation_id,) = CORRELATION_ID.unpack_from(answer)
                parts = answer_parts(ApiKey.PRODUCE, version, correlation_id, response)
                give(b"".join(part for part in parts if isinstance(part, BUFFERS)))
                return
        give(answer)

    # --- requests that need a task

    async def _answer_in_task(self, frame: memoryview, client: ClientConnection) -> Answer | None:
        session = self._sessions.session(client)
        session.release()
        if session.raw_tokens:
            return await self._pass_token_on(frame, session)
        header = parse_header(frame)
        try:
            key = api_key(header.api_key)
        except ValueError:
            raise UnanswerableError(f"unknown API key {header.api_key}") from None
        self._count(key, header, frame, client)
        if key is GregorApiKey.DESCRIBE_CLIENTS:
            return answer_parts(key, header.api_version, header.correlation_id, describe_clients(self._sessions))
        try:
            if key is ApiKey.API_VERSIONS:
                return await self._answer_api_versions(header, frame, session)
            if key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
                return await self._pass_login_on(key, header, frame, session)
            version = upstream_version(key, header.api_version, await session.versions())
            if version is None or (session.only_node is None and key in TO_ONE_REPLICA):
                raise UnanswerableError(f"unsupported version {header.api_version} of {key.name}")
            if key is ApiKey.FETCH:
                return await self._fetches.answer(version, header, frame, session)
            if version != header.api_version:
                return await self._translate(key, version, header, frame, session)
            return await self._pass_on(key, header, frame, session)
        except LinkLostError as error:
            raise UnanswerableError(f"{key.name} v{header.api_version} is unanswered: {error}") from error
        except UnreachableError as error:
            kind = OutageError if self._upstream.reachability.is_reported else UnanswerableError
            raise kind(f"no upstream broker for {key.name}: {error}") from error

    async def _pass_login_on(self, key: AnyApiKey, header: Header, frame: memoryview, session: Session) -> Answer:
        """Pass a request of a SASL exchange on; the client's broker then knows its principal, and no other does."""
        found = await (await session.home()).exchange(frame, session.client.hangup)
        request = read_request(key, header, frame)
        response = read_answer(key, header.api_version, found)
        if isinstance(request, SaslAuthenticateRequest):
            assert isinstance(response, SaslAuthenticateResponse)
            if not response.error_code:
                session.logged_in(request.auth_bytes)
            return [found]
        assert isinstance(request, SaslHandshakeRequest)
        assert isinstance(response, SaslHandshakeResponse)
        session.mechanism = request.mechanism
        if session.only_node is None and request.mechanism not in MECHANISMS and not response.error_code:
            logger.warning(
                "%s cannot log in with %s, whose exchange reaches one broker only: set gregor.gateway.broker.ports, or "
                "let clients use PLAIN or OAUTHBEARER",
                session.client.connection_id,
                request.mechanism,
            )
            response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            response.mechanisms = [mechanism for mechanism in response.mechanisms if mechanism in MECHANISMS]
        session.is_logged_in = True
        session.raw_tokens = raw_tokens(header.api_version, request, response)
        return answer_parts(key, header.api_version, header.correlation_id, response)

    async def _pass_token_on(self, frame: memoryview, session: Session) -> Answer:
        """Pass a token without a header on. Raises UnanswerableError: a refused one is answered by a disconnect."""
        session.raw_tokens -= 1
        token = bytes(frame)
        try:
            answer = await (await session.home()).exchange(token, session.client.hangup)
            session.logged_in(token)
            return [answer]
        except (LinkLostError, UnreachableError) as error:
            raise UnanswerableError(f"the SASL exchange has ended: {error}") from error

    def _count(self, key: AnyApiKey, header: Header, frame: memoryview, client: ClientConnection) -> None:
        if header.client_id != client.client_id:
            self._sessions.client_id_changed(client, header.client_id)
        client.client_id_bytes = bytes(frame[FIXED.size : header.end])
        client.request_counts[key, header.api_version] += 1

    async def _answer_api_versions(self, header: Header, frame: memoryview, session: Session) -> Answer:
        """Answer with the versions of upstream and of the gateway; a version that upstream lacks is answered in v0."""
        link = await session.home()
        found = await link.exchange(frame, session.client.hangup)
        lowest, highest = link.offered.get(ApiKey.API_VERSIONS, (0, 0))
        is_served = lowest <= header.api_version <= highest
        version = header.api_version if is_served else 0
        response = read_answer(ApiKey.API_VERSIONS, version, found)
        assert isinstance(response, ApiVersionsResponse)
        if is_served and not response.error_code:
            if header.api_version >= 3:
                request = read_request(ApiKey.API_VERSIONS, header, frame)
                assert isinstance(request, ApiVersionsRequest)
                session.client.software_name = request.client_software_name
                session.client.software_version = request.client_software_version
            response.api_keys = [
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in offered_versions(await session.versions()).items()
                if session.only_node is not None or key not in TO_ONE_REPLICA
            ]
        return answer_parts(ApiKey.API_VERSIONS, version, header.correlation_id, response)

    async def _pass_on(self, key: AnyApiKey, header: Header, frame: memoryview, session: Session) -> Answer | None:
        """Send the request as it is to the broker that answers it; the answer is rewritten if it names brokers.

        A request for several brokers is split, and their answers are merged.
        """
        version = header.api_version
        found: bytes | Message | None
        if key is ApiKey.DESCRIBE_CONFIGS and self._addresses.changes_node_ids:
            return await self._describe_configs(header, frame, session)
        if session.only_node is not None or key not in ROUTED:
            if key is ApiKey.PRODUCE and not _produce_has_answer(frame, header.end, version):
                await (await session.home()).send(frame)
                return None
            found = await (await session.home()).exchange(frame, session.client.hangup)
        else:
            request = read_request(key, header, frame)
            found = await self._router.pass_on(key, header, frame, session, request)
        if found is None:
            return None
        if isinstance(found, Message):
            rewrite_brokers(found, version, self._addresses, session.client)
            return answer_parts(key, version, header.correlation_id, found)
        learn = partial(self._learn, key, header, frame)
        return await self._rewritten.answer(key, version, found, session.client, learn)

    async def _describe_configs(self, header: Header, frame: memoryview, session: Session) -> Answer:
        """Describe configurations; the one broker that the client sees is the broker that answers."""
        key, version = ApiKey.DESCRIBE_CONFIGS, header.api_version
        request = read_request(key, header, frame)
        assert isinstance(request, DescribeConfigsRequest)
        home = await session.home()
        shown, meant = str(self._addresses.node(home.node)), str(home.node)
        for resource in request.resources:
            if resource.resource_type in BROKER_RESOURCES and resource.resource_name == shown:
                resource.resource_name = meant
        found = await home.exchange(request_frame(key, version, header, request), session.client.hangup)
        response = read_answer(key, version, found)
        assert isinstance(response, DescribeConfigsResponse)
        for result in response.results:
            if result.resource_type in BROKER_RESOURCES and result.resource_name == meant:
                result.resource_name = shown
        return answer_parts(key, version, header.correlation_id, response)

    def _learn(self, key: AnyApiKey, header: Header, frame: memoryview, response: Message) -> None:
        """Store the leaders and the coordinator that an answer names."""
        if isinstance(response, MetadataResponse):
            self._upstream.learn(response)
        elif isinstance(response, FindCoordinatorResponse):
            request = read_request(key, header, frame)
            assert isinstance(request, FindCoordinatorRequest)
            if response.coordinators:
                for found in response.coordinators:
                    if not found.error_code:
                        self._upstream.learn_coordinator(request.key_type, found.key, found.node_id)
            elif not response.error_code:
                self._upstream.learn_coordinator(request.key_type, request.key, response.node_id)

    # --- translations

    async def _translate(
        self, key: AnyApiKey, version: int, header: Header, frame: memoryview, session: Session
    ) -> Answer | None:
        request: Any = read_request(key, header, frame)
        ask = partial(self._router.send, key, version, header, session)
        response = await self._translations[key](request, header.api_version, ask)
        if key is ApiKey.PRODUCE and request.acks == 0:
            if response is not None:
                raise UnanswerableError(f"{key.name} v{header.api_version} failed and expects no answer")
            return None
        return answer_parts(key, header.api_version, header.correlation_id, response)


_NEVER_AS_IT_IS = (
    ApiKey.FETCH,
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_CONFIGS,
)


@cache
def _passes_as_it_is(number: int, version: int) -> bool:
    """Return whether requests and answers of this version pass through without a look inside, Produce's hints aside."""
    try:
        key = api_key(number)
    except ValueError:
        return False
    oldest, newest = valid_versions(key)
    if not isinstance(key, ApiKey) or key in _NEVER_AS_IT_IS or not oldest <= version <= newest:
        return False
    return key is ApiKey.PRODUCE or not has_brokers(key, version)


def _produce_has_answer(frame: memoryview, position: int, version: int) -> bool:
    """Return whether a Produce request, whose client id ends at ``position``, asks for an answer: acks is not 0.

    Raises DecodeError.
    """
    if is_flexible(ApiKey.PRODUCE, version):
        position = skip_tagged_fields(frame, position)
        length, position = read_unsigned_varint(frame, position)
        position += max(length - 1, 0)
    elif version >= FIRST_VERSION_OF_PRODUCE_WITH_TRANSACTIONS:
        length, position = _int16_at(frame, position), position + INT16.size
        position += max(length, 0)
    return _int16_at(frame, position) != 0


def _int16_at(frame: memoryview, position: int) -> int:
    if position + INT16.size > len(frame):
        raise DecodeError("a Produce request is cut short")
    value: int = INT16.unpack_from(frame, position)[0]
    return value


def _give(pending: Pending[Answer], client: ClientConnection, answer: Buffer | None) -> None:
    """Complete the client's answer; a client whose answer is lost is disconnected, as by the broker itself."""
    if answer is None:
        client.disconnect()
    else:
        pending.complete([bytes(answer)])
