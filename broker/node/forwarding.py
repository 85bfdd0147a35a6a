"""Forwarding of requests that only the controller may answer: brokers wrap them in envelopes (KIP-590).

An envelope holds the client's request, its principal and its address; the answer holds the response. So clients may
send any request to any broker, and need not know the controller.
"""

from __future__ import annotations

import ipaddress
import struct

import trio

from ...protocol.apis import response_class
from ...protocol.codec import decode, encode
from ...protocol.conversation import Conversation
from ...protocol.errors import BrokerError, DecodeError, ErrorCode
from ...protocol.framing import LENGTH
from ...protocol.messages.default_principal_data import DefaultPrincipalData
from ...protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ...protocol.schema import Message
from ...security.principal import KafkaPrincipal
from ..api.contract import RequestContext
from ..peers.peers import ControllerLink
from ..server.client_connection import ClientConnection, UnanswerableError
from ..server.outcome import result_of

PRINCIPAL_VERSION = struct.Struct(">h")
TIMEOUT_S = 30.0
"""Longest time in seconds that a request waits for a controller that restarts; clients seldom wait longer."""


class Forwarding:
    """A broker's side of forwarding, which wraps requests in envelopes."""

    def __init__(self, link: ControllerLink) -> None:
        self._link = link

    async def forward(self, request: Message, context: RequestContext) -> Message:
        """Return the controller's response to a client's request. Raises BrokerError."""
        client = context.client
        conversation = Conversation(context.client_id, first_correlation_id=context.correlation_id)
        conversation.submit(request, context.api_version)
        envelope = EnvelopeRequest(
            request_data=b"".join(conversation.take_outgoing())[LENGTH.size :],
            request_principal=_packed_principal(client.principal),
            client_host_address=_packed_address(client.peer[0]),
        )
        answer = await self._link.ask(envelope, EnvelopeResponse, timeout_s=TIMEOUT_S)
        if answer.error_code or answer.response_data is None:
            raise BrokerError(ErrorCode(answer.error_code or ErrorCode.UNKNOWN_SERVER_ERROR))
        return conversation.answer(memoryview(answer.response_data)).decode(response_class(context.api_key))


async def open_envelope(request: EnvelopeRequest, context: RequestContext) -> EnvelopeResponse:
    """Answer the request inside an envelope, on the controller, as if its client were connected here."""
    try:
        client = _client_inside(request, context)
        answer = await result_of(context.dispatch.answer(memoryview(request.request_data), client))
    except (DecodeError, ValueError, struct.error):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    except UnanswerableError:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if answer is None:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    return EnvelopeResponse(response_data=b"".join(bytes(part) for part in answer))  # type: ignore[arg-type]


def _client_inside(request: EnvelopeRequest, context: RequestContext) -> ClientConnection:
    """Return the client that sent the request to the forwarding broker.

    Raises DecodeError, ValueError or struct.error for a malformed envelope.
    """
    principal = bytes(request.request_principal or b"")
    (version,) = PRINCIPAL_VERSION.unpack_from(principal)
    sender = decode(DefaultPrincipalData, principal[PRINCIPAL_VERSION.size :], version)
    host = str(ipaddress.ip_address(bytes(request.client_host_address)))
    return ClientConnection(
        (host, 0),
        context.local_address,
        context.listener_name,
        context.connection_id,
        trio.Event(),
        principal=KafkaPrincipal(sender.type, sender.name, sender.token_authenticated),
        is_forwarded=True,
    )


def _packed_principal(principal: KafkaPrincipal) -> bytes:
    """Return the bytes of a principal as Kafka's ``DefaultKafkaPrincipalBuilder.serialize`` writes them."""
    data = DefaultPrincipalData(
        type=principal.principal_type, name=principal.name, token_authenticated=principal.token_authenticated
    )
    return PRINCIPAL_VERSION.pack(0) + encode(data, 0)


def _packed_address(host: str) -> bytes:
    """Return the bytes of an address as Java's InetAddress has them, without the zone of a link-local address."""
    return ipaddress.ip_address(host.partition("%")[0]).packed
