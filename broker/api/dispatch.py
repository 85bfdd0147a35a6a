"""From a request frame to its handler, and from the handler's response to the bytes of the answer.

The table `APIS` (`table.py`) lists the APIs that this broker serves.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from struct import Struct
from typing import Any, cast

from ...protocol.apis import (
    AnyApiKey,
    ApiKey,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)
from ...protocol.codec import decode, encode_parts
from ...protocol.errors import BrokerError, DecodeError, EncodeError, ErrorCode
from ...protocol.schema import Message
from ...protocol.schema import Struct as SchemaStruct
from ..server.client_connection import ClientConnection, ClientGoneError
from ..server.connection import UnanswerableError
from ..server.late_answer import LateAnswer
from ..server.parts import Answer
from ..server.request_header import FIXED, Header, parse_header, skip_tagged_fields
from .contract import Api, Handler, RequestContext, Route, VersionRange
from .handlers.api_versions import unsupported_version
from .services import Services
from .table import APIS

logger = logging.getLogger(__name__)

CORRELATION_ID = Struct(">i")
NO_TAGGED_FIELDS = b"\0"
ERROR_MESSAGE = "error_message"
LONGEST_ERROR_MESSAGE = 1000
"""Maximum length, in characters, of error messages in an answer that is too large to encode otherwise."""


def own_handler(api: Api, request: Message) -> Handler:
    """Return the handler in the API's row: the route of every request on a lone broker."""
    return api.handler


class Dispatcher:
    """A responder that answers request frames for one broker (the `Responder` of its connections)."""

    def __init__(self, services: Services, apis: Mapping[int, Api] = APIS, route: Route = own_handler) -> None:
        self.services = services
        self._route = route
        self.serve(apis)

    def serve(self, apis: Mapping[int, Api]) -> None:
        """Serve these APIs and versions from now on."""
        self._apis = apis
        self.offered: Mapping[AnyApiKey, VersionRange] = {
            api.key: (api.min_version, api.max_version) for api in apis.values() if api.is_advertised
        }
        """Lowest and highest version of each API that ApiVersions lists."""
        self._short_cuts = {
            (api.key, version): api.short_cut
            for api in apis.values()
            if api.short_cut is not None
            for version in range(api.min_version, api.max_version + 1)
        }

    def answer_now(self, frame: memoryview, client: ClientConnection) -> bytes | LateAnswer | None:
        """Return the frame of the answer if the API has a short cut for such a request, else None; see `ShortCut`."""
        services = self.services
        if len(frame) < FIXED.size or services.quotas.is_active:
            return None
        key, version, correlation_id, client_id_length = FIXED.unpack_from(frame)
        short_cut = self._short_cuts.get((key, version))
        if short_cut is None:
            return None
        position = FIXED.size + max(client_id_length, 0)
        if bytes(frame[FIXED.size : position]) != client.client_id_bytes:
            return None
        answer = short_cut(services, frame, position, version, correlation_id)
        if answer is not None:
            client.request_counts[key, version] += 1
        return answer

    async def answer(self, frame: memoryview, client: ClientConnection) -> Answer | None:
        """Answer one request; return None if the client expects no answer.

        Raises UnanswerableError for an unsupported API or version and for a failure without an error field in the
        response, DecodeError for malformed bytes, ClientGoneError.
        """
        header = parse_header(frame)
        api = self._apis.get(header.api_key)
        if api is None:
            raise UnanswerableError(f"unknown API key {header.api_key}")
        if api.min_version <= header.api_version <= api.max_version:
            return await self._handle(api, header, frame, client)
        if api.key is ApiKey.API_VERSIONS:
            refusal = unsupported_version(api.min_version, api.max_version)
            return _answer(refusal, api.key, 0, header.correlation_id)
        raise UnanswerableError(f"unsupported version {header.api_version} of {api.key.name}")

    async def _handle(self, api: Api, header: Header, frame: memoryview, client: ClientConnection) -> Answer | None:
        version = header.api_version
        position = header.end
        if request_header_version(api.key, version) >= 2:
            position = skip_tagged_fields(frame, position)
        request = decode(request_class(api.key), frame[position:], version)
        if header.client_id != client.client_id:
            self.services.clients.client_id_changed(client, header.client_id)
            client.client_id_bytes = bytes(frame[FIXED.size : header.end])
        client.request_counts[api.key, version] += 1
        context = RequestContext(self.services, client, api, version, self, header.correlation_id, header.client_id)
        responding = self.respond(api, request, context)
        quotas = self.services.quotas
        if quotas.is_active:
            response = await quotas.respond(responding, request, context, len(frame))
        else:
            response = await responding
        if context.closing:
            raise UnanswerableError(f"{api.key.name} v{version} failed and expects no answer")
        if response is None:
            return None
        try:
            return _answer(response, api.key, version, header.correlation_id)
        except EncodeError as error:
            logger.info("%s v%d on %s is refused: %s", api.key.name, version, context.connection_id, error)
            refusal = _refusal(api, request, version, ErrorCode.UNKNOWN_SERVER_ERROR, "The answer cannot be encoded.")
            return _answer(refusal, api.key, version, header.correlation_id)

    async def respond(self, api: Api, request: Message, context: RequestContext) -> Message | None:
        """Run the handler or ask the controller, and turn an exception into the response's error field, if it has
        one."""
        try:
            return cast(Message | None, await self._route(api, request)(request, context))
        except (UnanswerableError, ClientGoneError, DecodeError):
            raise
        except BrokerError as error:
            return _failure(api, error.code, error.message)
        except EncodeError as error:
            logger.info("%s v%d on %s refused: %s", api.key.name, context.api_version, context.connection_id, error)
            return _refusal(api, request, context.api_version, ErrorCode.INVALID_REQUEST, str(error))
        except Exception:
            logger.exception("%s v%d on %s failed", api.key.name, context.api_version, context.connection_id)
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


def _refusal(api: Api, request: Message, version: int, code: ErrorCode, message: str) -> Message:
    """Return a response with an error at the top level or, without such a field, in each entry."""
    # Imported on first use: most brokers never need it.
    from .refusals import has_top_level_error, refused

    cls = response_class(api.key)
    return _failure(api, code, message) if has_top_level_error(cls, version) else refused(request, cls, version, code)


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


def _answer(response: Message, key: AnyApiKey, version: int, correlation_id: int) -> Answer:
    header = CORRELATION_ID.pack(correlation_id)
    if response_header_version(key, version) >= 1:
        header += NO_TAGGED_FIELDS
    # Every part that a handler puts into a response has a method that sends it, not only a size.
    return cast(Answer, [header, *_encoded(response, version)])
