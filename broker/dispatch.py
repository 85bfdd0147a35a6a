"""From a frame to the handler of its API, and from the handler's response to the bytes of an answer.

One table, `APIS`, says what this broker serves. Dispatch looks requests up in it, and ApiVersions is computed from it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..protocol.apis import ApiKey, is_flexible, request_class, request_header_version, response_header_version
from ..protocol.apis import valid_versions
from ..protocol.codec import decode, encode_parts
from ..protocol.errors import BrokerError, DecodeError, ErrorCode
from .connection import CloseConnection
from .handlers import api_versions, delete_records, fetch, list_offsets, offset_for_leader_epoch, produce
from .parts import Answer
from .requests import ClientConnection, ClientGone, RequestContext

if TYPE_CHECKING:
    from .broker import Broker

logger = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Any, RequestContext], Awaitable[Any]]
"""Typed request in, typed response out; None where the client expects no answer."""

FIXED_HEADER = Struct(">hhih")  # api key, api version, correlation id, length of the client id
CORRELATION_ID = Struct(">i")


class Api(NamedTuple):
    """What is served of one API."""

    key: ApiKey
    min_version: int
    max_version: int
    handler: Handler


def _serve(key: ApiKey, handler: Handler, *, max_version: int | None = None) -> Api:
    """A row for all stable versions of an API that Kafka 3.9 has, or up to ``max_version``."""
    lowest, highest = valid_versions(key)
    return Api(key, lowest, highest if max_version is None else max_version, handler)


APIS: Mapping[int, Api] = {
    api.key: api
    for api in (
        _serve(ApiKey.PRODUCE, produce.handle_produce),
        _serve(ApiKey.FETCH, fetch.handle_fetch),
        _serve(ApiKey.LIST_OFFSETS, list_offsets.handle_list_offsets),
        _serve(ApiKey.API_VERSIONS, api_versions.handle_api_versions),
        _serve(ApiKey.DELETE_RECORDS, delete_records.handle_delete_records),
        _serve(ApiKey.OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch.handle_offset_for_leader_epoch),
    )
}


@dataclass(slots=True)
class Header:
    """A request's header, and where its body begins in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def parse_header(frame: memoryview) -> Header:
    """Read the fixed part and the client id; the tagged fields of flexible versions are skipped by `body_of`.

    A negative length is a null client id and bytes that are no UTF-8 are replaced, as Kafka does. Raises DecodeError
    for a frame that is too short.
    """
    if len(frame) < FIXED_HEADER.size:
        raise DecodeError(f"a frame of {len(frame)} bytes holds no request header")
    key, version, correlation_id, length = FIXED_HEADER.unpack_from(frame)
    if length < 0:
        return Header(key, version, correlation_id, None, FIXED_HEADER.size)
    end = FIXED_HEADER.size + length
    if end > len(frame):
        raise DecodeError(f"a client id of {length} bytes runs out of the frame")
    client_id = str(frame[FIXED_HEADER.size : end], "utf-8", "replace")
    return Header(key, version, correlation_id, client_id, end)


def skip_tagged_fields(frame: memoryview, position: int) -> int:
    """Position after the tagged fields (KIP-482) at ``position``. Raises DecodeError if they run out of the frame."""
    count, position = _unsigned_varint(frame, position)
    for _ in range(count):
        _, position = _unsigned_varint(frame, position)
        size_bytes, position = _unsigned_varint(frame, position)
        position += size_bytes
        if position > len(frame):
            raise DecodeError("a tagged field of the header runs out of the frame")
    return position


def _unsigned_varint(frame: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(frame):
            break
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise DecodeError("a variable-length number in the header does not end")


class Dispatcher:
    """Answers request frames for one broker (the `Responder` of its connections)."""

    def __init__(self, broker: Broker, apis: Mapping[int, Api] = APIS) -> None:
        self._broker = broker
        self._apis = apis
        self._requests = broker.metrics.request_counts

    def answer_now(self, frame: memoryview, client: ClientConnection) -> Answer | None:
        """No API has a short cut yet."""
        return None

    async def answer(self, frame: memoryview, client: ClientConnection) -> Answer | None:
        """Answer one request; None where the client expects no answer.

        Raises CloseConnection for an API or version that we lack and for what cannot be answered, DecodeError for
        malformed bytes, ClientGone.
        """
        header = parse_header(frame)
        api = self._apis.get(header.api_key)
        if api is None:
            raise CloseConnection(f"unknown API key {header.api_key}")
        if not api.min_version <= header.api_version <= api.max_version:
            if api.key is ApiKey.API_VERSIONS:
                return _frame(
                    api_versions.unsupported_version(api.min_version, api.max_version),
                    api.key,
                    0,
                    header.correlation_id,
                )
            raise CloseConnection(f"unsupported version {header.api_version} of {api.key.name}")
        return await self._handle(api, header, frame, client)

    async def _handle(self, api: Api, header: Header, frame: memoryview, client: ClientConnection) -> Answer | None:
        version = header.api_version
        body_position = header.body_position
        if request_header_version(api.key, version) >= 2:
            body_position = skip_tagged_fields(frame, body_position)
        request = decode(request_class(api.key), frame[body_position:], version)
        self._requests[api.key, version] += 1
        context = RequestContext(self._broker, client, api.key, version, header.correlation_id, header.client_id)
        response = await self._respond(api, request, context)
        if context.closing:
            raise CloseConnection(f"{api.key.name} v{version} cannot be answered")
        return None if response is None else _frame(response, api.key, version, header.correlation_id)

    async def _respond(self, api: Api, request: object, context: RequestContext) -> Any:
        """Run the handler; what it raises becomes the response's own error field, if it has one."""
        try:
            return await api.handler(request, context)
        except (CloseConnection, ClientGone, DecodeError):
            raise
        except BrokerError as error:
            return _failure(api, error.code, error.message)
        except Exception:
            logger.exception("%s v%d from %s failed", api.key.name, context.api_version, context.connection_id)
            return _failure(api, ErrorCode.UNKNOWN_SERVER_ERROR, None)


def _failure(api: Api, code: ErrorCode, message: str | None) -> object:
    """A response that only says what went wrong. Raises CloseConnection where the API has no field for that."""
    response = response_class(api.key)()
    if not hasattr(response, "error_code"):
        raise CloseConnection(f"{api.key.name} failed with {code.name}, which its response cannot carry")
    response.error_code = code
    if message is not None and hasattr(response, "error_message"):
        response.error_message = message
    return response


def _frame(response: object, key: ApiKey, version: int, correlation_id: int) -> Answer:
    header = CORRELATION_ID.pack(correlation_id)
    if response_header_version(key, version) >= 1:
        header += b"\0"
    return [header, *encode_parts(response, version)]


def ranges(apis: Iterable[Api]) -> dict[int, tuple[int, int]]:
    """Versions by API key, as ApiVersions tells them."""
    return {api.key: (api.min_version, api.max_version) for api in apis}
