"""From a request frame to its handler, and from the handler's response to the bytes of the answer.

The table `APIS` (`table.py`) lists the APIs that this broker serves.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, cast

from ...protocol.apis import (
    ApiKey,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)
from ...protocol.codec import decode, encode_parts
from ...protocol.errors import BrokerError, DecodeError, EncodeError, ErrorCode
from ...protocol.messages.api_versions import ApiVersion
from ...protocol.schema import Message
from ...protocol.schema import Struct as SchemaStruct
from ...protocol.unsigned_varint import skip_tagged_fields
from ..replicas.partition import Partition
from ..server.client_connection import ClientConnection, ClientGoneError, UnanswerableError
from ..server.outcome import Outcome, then
from ..server.parts import Answer
from ..server.receive_buffer_cy import LENGTH
from ..server.request_header_cy import FIXED, Header, parse_header
from .contract import Api, Handler, RequestContext, Route
from .deferred_handlers import DeferredFunction
from .delayed_plain_fetch import DelayedPlainFetch
from .encoded_structs import EncodedStructs
from .handlers.api_versions import unsupported_version
from .handlers.fetch import handle_fetch
from .handlers.produce import refused_append, unreplicated
from .plain_fetch_lane_cy import PlainFetchLane
from .plain_lane_cy import LateAnswer, PlainLane
from .services import Services
from .table import APIS

logger = logging.getLogger(__name__)

_FETCH_KEY = int(ApiKey.FETCH)
CORRELATION_ID = Struct(">i")
NO_TAGGED_FIELDS = b"\0"
PRODUCE_BYTES = ApiKey.PRODUCE.to_bytes(2, "big")
UNANSWERED = (UnanswerableError, ClientGoneError, DecodeError)
"""Exceptions of handlers that close the connection."""
ERROR_MESSAGE = "error_message"
LONGEST_ERROR_MESSAGE = 1000
"""Maximum length, in characters, of error messages in an answer that is too large to encode otherwise."""


def own_handler(api: Api, request: Message) -> Handler:
    """Return the handler in the API's row: the route of every request on a lone broker."""
    return api.handler


@dataclass(frozen=True, slots=True)
class ServedVersion:
    """A version of an API that the broker serves."""

    api: Api
    request_class: type[Message]
    has_flexible_header: bool


class Dispatcher:
    """A responder that answers request frames for one broker (the `Responder` of its connections)."""

    has_plain_lane = True
    """Whether plain Produce requests may bypass `respond`."""
    takes_encoded = True
    """Whether responses may have encoded entries."""

    def __init__(self, services: Services, apis: Mapping[int, Api] = APIS, route: Route = own_handler) -> None:
        self.services = services
        self._route = route
        self._errors = services.metrics.response_errors
        self._encoded_structs = EncodedStructs() if self.takes_encoded else None
        self.serve(apis)

    def serve(self, apis: Mapping[int, Api]) -> None:
        """Serve these APIs and versions from now on."""
        if self.services.authorizer is not None:
            # Imported on first use: most brokers have no authorizer.
            from .authorization import with_authorization

            apis = with_authorization(apis)
        self._apis = apis
        self.offered = [
            ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in apis.values()
            if api.is_advertised
        ]
        """The versions of each API that ApiVersions lists, made once, as each client asks for them when it connects."""
        self._served: dict[tuple[int, int], ServedVersion] = {}
        """By API key and version, those that clients have used: the first use imports the API's messages."""
        self._pipelined = frozenset(api.key for api in apis.values() if api.is_pipelined)
        self.plain_lane = self._new_plain_lane(apis.get(ApiKey.PRODUCE))
        """Answers plain Produce requests; None where other parts of the broker read each request."""

        self._plain_fetch = self._new_plain_fetch(apis.get(ApiKey.FETCH))
        """Plans the answers to plain Fetch requests; None where other parts of the broker read each request."""

    def _new_plain_fetch(self, fetch: Api | None) -> PlainFetchLane | None:
        if fetch is None or not self.has_plain_lane or self.services.authorizer is not None:
            return None
        return PlainFetchLane(self.services) if fetch.handler is handle_fetch else None

    def _new_plain_lane(self, produce: Api | None) -> PlainLane | None:
        if produce is None or not self.has_plain_lane or self.services.authorizer is not None:
            return None
        services = self.services
        versions = produce.min_version, produce.max_version
        return PlainLane(
            services.partitions,
            services.clock,
            services.metrics,
            services.quotas,
            self._refuse_append,
            self._refuse_late,
            *versions,
        )

    def _refuse_append(self, error: Exception, partition: Partition, version: int, correlation_id: int) -> bytes:
        """Return the answer, with its length, to a plain Produce request whose append has failed."""
        return self._framed(refused_append(error, partition, self.services), version, correlation_id)

    def _refuse_late(self, late: LateAnswer, code: int) -> bytes:
        """Return the answer, with its length, to a plain Produce request whose records were not replicated in time."""
        client, version, correlation_id = late.client, late.version, late.correlation_id
        api = self._apis[ApiKey.PRODUCE]
        context = RequestContext(self.services, client, api, version, self, correlation_id, client.client_id)
        return self._framed(unreplicated(late.partition, late.result, code, context), version, correlation_id)

    def _framed(self, response: Message, version: int, correlation_id: int) -> bytes:
        """Return an answer to a Produce request with its length, and count its errors."""
        if self._errors is not None:
            self._errors.add(ApiKey.PRODUCE, response)
        answer = b"".join(cast(list[bytes], _answer(response, self._apis[ApiKey.PRODUCE], version, correlation_id)))
        return LENGTH.pack(len(answer)) + answer

    def is_pipelined(self, frame: memoryview, client: ClientConnection) -> bool:
        """Return whether a request may be handled while earlier ones of its connection are pending."""
        key = int.from_bytes(frame[:2], "big", signed=True)
        return key in self._pipelined and not self.services.quotas.is_active

    def answer(self, frame: memoryview, client: ClientConnection) -> Outcome[Answer | None]:
        """Answer one request; the result is None if the client expects no answer.

        Raises UnanswerableError for an unsupported API or version and for a failure without an error field in the
        response, DecodeError for malformed bytes, ClientGoneError; so may a pending outcome and a coroutine.
        """
        outcome: Outcome[Answer] | None
        if client.lane is not None:
            outcome = client.lane.answer(frame)
            if outcome is not None:
                return outcome
        elif self.plain_lane is not None and frame[:2] == PRODUCE_BYTES:
            outcome = self.plain_lane.answer_later(frame, client)
            if outcome is not None:
                return outcome
        header = parse_header(frame, client.client_id_bytes, client.client_id)
        if header.api_key == _FETCH_KEY and self._plain_fetch is not None:
            planned = self._answer_plain_fetch(self._plain_fetch, header, frame, client)
            if planned is not None:
                return planned
        return self._answer_declared(header, frame, client)

    def _answer_declared(self, header: Header, frame: memoryview, client: ClientConnection) -> Outcome[Answer | None]:
        """Answer a request with the declared codec and the handler of its API."""
        served = self._served.get((header.api_key, header.api_version)) or self._first_use(header)
        if served is None:
            return self._refuse_unserved(header)
        position = header.end
        if served.has_flexible_header:
            has_none = position < len(frame) and frame[position] == NO_TAGGED_FIELDS[0]
            position = position + 1 if has_none else skip_tagged_fields(frame, position)
        return self._handle(served, header, position, frame, client)

    def _answer_plain_fetch(
        self, lane: PlainFetchLane, header: Header, frame: memoryview, client: ClientConnection
    ) -> Outcome[Answer] | None:
        """Return the answer of the lane, perhaps pending; None if a request is not plain."""
        # The lane counts the request for the client's present id.
        self._note_client_id(header, frame, client)
        answer = lane.answer(frame, header.end, header.api_version, header.correlation_id, client)
        purgatory = self.services.purgatory
        if answer is None and lane.missing_bytes > 0 and lane.max_wait_ms > 0 and not purgatory.is_stopping:
            return DelayedPlainFetch(lane, header, frame, client, self._answer_declared).delayed(purgatory)
        return answer

    def _first_use(self, header: Header) -> ServedVersion | None:
        """Return and keep what is known of the request's API and version; None if they are not served."""
        api = self._apis.get(header.api_key)
        version = header.api_version
        if api is None or not api.min_version <= version <= api.max_version:
            return None
        if isinstance(api.handler, DeferredFunction):
            api = api._replace(handler=api.handler.__wrapped__)
        served = self._served[header.api_key, version] = ServedVersion(
            api,
            request_class(api.key),
            has_flexible_header=request_header_version(api.key, version) >= 2,
        )
        return served

    def _refuse_unserved(self, header: Header) -> Answer:
        """Answer a request of an API or version that is not served, or raise UnanswerableError."""
        api = self._apis.get(header.api_key)
        if api is None:
            raise UnanswerableError(f"unknown API key {header.api_key}")
        if api.key is ApiKey.API_VERSIONS:
            refusal = unsupported_version(api.min_version, api.max_version)
            if self._errors is not None:
                self._errors.add(api.key, refusal)
            return _answer(refusal, api, 0, header.correlation_id)
        raise UnanswerableError(f"unsupported version {header.api_version} of {api.key.name}")

    def _context(self, api: Api, header: Header, frame: memoryview, client: ClientConnection) -> RequestContext:
        """Count a decoded request and return its context."""
        self._note_client_id(header, frame, client)
        version = header.api_version
        client.request_counts[api.key, version] += 1
        return RequestContext(
            self.services,
            client,
            api,
            version,
            self,
            header.correlation_id,
            header.client_id,
            encoded=self._encoded_structs,
        )

    def _note_client_id(self, header: Header, frame: memoryview, client: ClientConnection) -> None:
        """Keep the client id of a request that is the first of its connection, or has another one than before."""
        if header.client_id != client.client_id or client.client_id_bytes is None:
            self.services.clients.client_id_changed(client, header.client_id)
            client.client_id_bytes = bytes(frame[FIXED.size : header.end])

    def _handle(
        self, served: ServedVersion, header: Header, position: int, frame: memoryview, client: ClientConnection
    ) -> Outcome[Answer | None]:
        """Answer a request whose body, at ``position``, the declared codec decodes."""
        api = served.api
        request = decode(served.request_class, frame[position:], header.api_version)
        context = self._context(api, header, frame, client)
        quotas = self.services.quotas
        if quotas.is_active:
            return then(
                quotas.respond(lambda: self.respond(api, request, context), request, context, len(frame)),
                lambda response: self._encoded(response, request, context),
            )
        response = self.respond(api, request, context)
        # Most outcomes are responses; the check for a coroutine takes longer.
        if response is None or isinstance(response, Message):
            return self._encoded(response, request, context)
        kept = _kept(request, api)
        return then(response, lambda response: self._encoded(response, kept, context))

    def _encoded(self, response: Message | None, request: Message | None, context: RequestContext) -> Answer | None:
        api, version = context.api, context.api_version
        if context.closing:
            raise UnanswerableError(f"{api.key.name} v{version} failed and expects no answer")
        if response is None:
            return None
        if self._errors is not None:
            self._errors.add(api.key, response)
        try:
            return _answer(response, api, version, context.correlation_id)
        except EncodeError as error:
            logger.info("%s v%d on %s is refused: %s", api.key.name, version, context.connection_id, error)
            refusal = _refusal(api, request, version, ErrorCode.UNKNOWN_SERVER_ERROR, "The answer cannot be encoded.")
            return _answer(refusal, api, version, context.correlation_id)

    def respond(self, api: Api, request: Message, context: RequestContext) -> Outcome[Message | None]:
        """Return the outcome of the handler, or of the controller for requests that only the controller answers.

        An exception becomes the error field of the response; a response without one raises UnanswerableError instead.
        """
        try:
            response = self._route(api, request)(request, context)
        except UNANSWERED:
            raise
        except Exception as error:
            return _failed(error, request, context)
        if response is None or isinstance(response, Message):
            return response
        kept = _kept(request, api)
        return then(response, _same, lambda error: _failed_later(error, kept, context))


def _kept(request: Message, api: Api) -> Message | None:
    """Return what may be kept of a request while its answer is pending: nothing of a pipelined API.

    Such a request refers to the buffer of the connection, which meanwhile receives the next requests.
    """
    return None if api.is_pipelined else request


def _same(response: Message | None) -> Message | None:
    return response


def _failed_later(error: Exception, request: Message | None, context: RequestContext) -> Message:
    if isinstance(error, UNANSWERED):
        raise error
    return _failed(error, request, context)


def _failed(error: Exception, request: Message | None, context: RequestContext) -> Message:
    """Return the response to a request whose handler raised ``error``, and log errors that no handler should raise."""
    api, version, connection_id = context.api, context.api_version, context.connection_id
    if isinstance(error, BrokerError):
        return _refusal(api, request, version, error.code, error.message)
    if isinstance(error, EncodeError):
        logger.info("%s v%d on %s refused: %s", api.key.name, version, connection_id, error)
        return _refusal(api, request, version, ErrorCode.INVALID_REQUEST, str(error))
    logger.error("%s v%d on %s failed", api.key.name, version, connection_id, exc_info=error)
    return _failure(api, ErrorCode.UNKNOWN_SERVER_ERROR, None)


def _failure(api: Api, code: ErrorCode, message: str | None) -> Message:
    """Return a response that holds an error only. Raises UnanswerableError if the response has no error field."""
    response: Any = response_class(api.key)()
    if not hasattr(response, "error_code"):
        raise UnanswerableError(f"{api.key.name} failed with {code.name}, which its response cannot tell")
    response.error_code = code
    if message is not None and hasattr(response, "error_message"):
        response.error_message = message
    return cast(Message, response)


def _refusal(api: Api, request: Message | None, version: int, code: ErrorCode, message: str | None) -> Message:
    """Return a response with an error at the top level or, if that is missing or not enough, in each entry."""
    # Imported on first use: most brokers never need it.
    from ...protocol.refusals import has_top_level_error, refused

    cls = response_class(api.key)
    has_error = has_top_level_error(cls, version)
    if request is None or (has_error and not api.repeats_refusals):
        return _failure(api, code, message)
    response: Any = refused(request, cls, version, code, message)
    if has_error:
        response.error_code = code
    return cast(Message, response)


def _shorten_messages(response: SchemaStruct) -> None:
    """Shorten error messages that repeat a name of the maximum length of a string."""
    for name in response.FIELD_DEFAULTS:
        value = getattr(response, name)
        if name == ERROR_MESSAGE and value is not None and len(value) > LONGEST_ERROR_MESSAGE:
            setattr(response, name, value[:LONGEST_ERROR_MESSAGE] + "...")
        for inside in value if isinstance(value, list) else [value]:
            if isinstance(inside, SchemaStruct):
                _shorten_messages(inside)


def _encoded(response: Message, version: int) -> list[Any]:
    """Encode a response, with shortened error messages if it is too large. Raises EncodeError if it still is."""
    try:
        return encode_parts(response, version)
    except EncodeError:
        _shorten_messages(response)
        return encode_parts(response, version)


def _head(api: Api, version: int, correlation_id: int) -> bytes:
    """Return the header of a response."""
    head = CORRELATION_ID.pack(correlation_id)
    return head + NO_TAGGED_FIELDS if response_header_version(api.key, version) >= 1 else head


def _answer(response: Message, api: Api, version: int, correlation_id: int) -> Answer:
    # Every part that a handler puts into a response has a method that sends it, not only a size.
    return cast(Answer, [_head(api, version, correlation_id), *_encoded(response, version)])
