"""The server's side of a SASL login, with the states and errors of Kafka's ``SaslServerAuthenticator``.

A client may send ApiVersions, then SaslHandshake, then tokens: bare ones after SaslHandshake v0, in SaslAuthenticate
requests after v1 (KIP-152). An authenticated client authenticates again in the same way (KIP-368), but never as another
user or by another mechanism.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeVar

import trio

from ...protocol.apis import ApiKey, request_header_version, response_header_version
from ...protocol.codec import decode, encode
from ...protocol.errors import DecodeError, ErrorCode
from ...protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ...protocol.schema import Message
from ...protocol.unsigned_varint import skip_tagged_fields
from ...security.errors import SaslAuthenticationError, SaslError
from ...security.oauthbearer import OAuthBearerServer
from ...security.principal import USER_TYPE, KafkaPrincipal
from ...security.sasl import ServerExchange
from ..server.admission import ClientRefusedError, Respond, printable
from ..server.client_connection import ClientConnection
from ..server.parts import BUFFERS, Answer
from ..server.request_header_cy import Header, parse_header

logger = logging.getLogger(__name__)

NEWEST_HANDSHAKE = 1
NEWEST_AUTHENTICATE = 2
Request = TypeVar("Request", bound=Message)
LEAST_REAUTHENTICATION_INTERVAL_S = 1.0
"""A client that authenticates again sooner is refused (Kafka ``KafkaChannel``)."""


class State(Enum):
    """A state of a login (Kafka ``SaslServerAuthenticator.SaslState``)."""

    HANDSHAKE_OR_VERSIONS = auto()
    HANDSHAKE = auto()
    TOKEN = auto()
    """Tokens are frames by themselves (after SaslHandshake v0)."""
    AUTHENTICATE = auto()
    COMPLETE = auto()


@dataclass(frozen=True, slots=True)
class LoginRules:
    """The rules of one listener for logins."""

    exchanges: Mapping[str, Callable[[], ServerExchange]]
    """Returns the server's side of a new exchange, by mechanism."""
    longest_session_ms: Mapping[str, int] = field(default_factory=dict)
    """``connections.max.reauth.ms`` by mechanism; 0 or missing for sessions without an end."""


class SaslLogin:
    """The login of one client, and its session after that."""

    def __init__(self, rules: LoginRules, client: ClientConnection) -> None:
        self._rules = rules
        self._client = client
        self._state = State.HANDSHAKE_OR_VERSIONS
        self._mechanism = ""
        self._exchange: ServerExchange | None = None
        self._is_authenticated = False
        self._last_began_at = -LEAST_REAUTHENTICATION_INTERVAL_S
        self._authenticate_version = 0
        client.sasl = self

    @property
    def is_complete(self) -> bool:
        """Whether the client is authenticated."""
        return self._state is State.COMPLETE

    @property
    def can_begin_again(self) -> bool:
        """Whether the client can authenticate again; see `client_connection.SaslSession`."""
        return self._authenticate_version > 0

    # --- before the client is authenticated: frames

    async def answer(self, frame: memoryview, respond: Respond) -> Answer | None:
        """Answer one frame of a client that is not authenticated; see `admission.Authenticator`."""
        if self._state is State.TOKEN:
            return self._answer_token(bytes(frame))
        header = parse_header(frame)
        if header.api_key == ApiKey.API_VERSIONS:
            return await self._answer_versions(frame, header, respond)
        if header.api_key == ApiKey.SASL_HANDSHAKE and self._state is not State.AUTHENTICATE:
            return self._answer_handshake(frame, header)
        if header.api_key == ApiKey.SASL_AUTHENTICATE and self._state is State.AUTHENTICATE:
            return self._answer_authenticate(frame, header)
        during = "authentication" if self._state is State.AUTHENTICATE else "handshake"
        raise ClientRefusedError(f"Unexpected Kafka request of type {_named(header.api_key)} during SASL {during}.")

    async def _answer_versions(self, frame: memoryview, header: Header, respond: Respond) -> Answer | None:
        if self._state is not State.HANDSHAKE_OR_VERSIONS:
            raise ClientRefusedError("Unexpected Kafka request of type API_VERSIONS during SASL handshake.")
        answer = await respond(frame)
        if _error_code(answer) != ErrorCode.UNSUPPORTED_VERSION:
            # Without a common version the client may ask once more.
            self._state = State.HANDSHAKE
        return answer

    def _answer_handshake(self, frame: memoryview, header: Header) -> Answer:
        if not 0 <= header.api_version <= NEWEST_HANDSHAKE:
            raise ClientRefusedError(f"unsupported version {header.api_version} of SASL_HANDSHAKE")
        request = _decoded(SaslHandshakeRequest, ApiKey.SASL_HANDSHAKE, frame, header)
        response = self._begin(request.mechanism)
        answer = _encoded(response, ApiKey.SASL_HANDSHAKE, header)
        if response.error_code:
            raise ClientRefusedError(f"Unsupported SASL mechanism {request.mechanism[:100]!r}", answer)
        self._state = State.AUTHENTICATE if header.api_version else State.TOKEN
        return answer

    def _begin(self, mechanism: str) -> SaslHandshakeResponse:
        """Choose the mechanism, and begin an exchange if it is enabled."""
        response = SaslHandshakeResponse(mechanisms=list(self._rules.exchanges))
        new_exchange = self._rules.exchanges.get(mechanism)
        if new_exchange is None:
            response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        else:
            self._mechanism, self._exchange = mechanism, new_exchange()
        return response

    def _answer_token(self, token: bytes) -> Answer:
        try:
            return [self._take(token)]
        except (SaslAuthenticationError, SaslError) as error:
            raise ClientRefusedError(self._reason(error)) from None

    def _answer_authenticate(self, frame: memoryview, header: Header) -> Answer:
        if not 0 <= header.api_version <= NEWEST_AUTHENTICATE:
            raise ClientRefusedError(f"unsupported version {header.api_version} of SASL_AUTHENTICATE")
        request = _decoded(SaslAuthenticateRequest, ApiKey.SASL_AUTHENTICATE, frame, header)
        response, reason = self._continue(bytes(request.auth_bytes), header.api_version)
        answer = _encoded(response, ApiKey.SASL_AUTHENTICATE, header)
        if reason is not None:
            raise ClientRefusedError(reason, answer)
        return answer

    # --- after that: requests (KIP-368)

    def handshake(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        """Begin to authenticate again; see `client_connection.SaslSession`."""
        now = trio.current_time()
        if (
            self._client.session_expires_at is None
            or version == 0
            or now - self._last_began_at < LEAST_REAUTHENTICATION_INTERVAL_S
        ):
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        self._last_began_at = now
        if request.mechanism in self._rules.exchanges and request.mechanism != self._mechanism:
            logger.info(
                "SASL mechanism '%s' requested by client is not supported for re-authentication of mechanism '%s'",
                request.mechanism,
                self._mechanism,
            )
            self._refuse_again()
            return SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=list(self._rules.exchanges)
            )
        response = self._begin(request.mechanism)
        if response.error_code:
            self._refuse_again()
        else:
            self._state = State.AUTHENTICATE
        return response

    def _refuse_again(self) -> None:
        """End the connection after the present answer, as the client has failed to authenticate again."""
        self._client.activity.failed_reauthentication.record()
        self._client.is_refused = True

    def authenticate(self, request: SaslAuthenticateRequest, version: int) -> SaslAuthenticateResponse:
        """Continue to authenticate again; see `client_connection.SaslSession`."""
        if self._state is not State.AUTHENTICATE:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate request received after successful authentication",
            )
        response, reason = self._continue(bytes(request.auth_bytes), version)
        if reason is not None:
            client = self._client
            logger.info(
                "Failed re-authentication with /%s (channelId=%s) (%s)",
                client.host,
                client.connection_id,
                printable(reason),
            )
            self._refuse_again()
        elif self.is_complete:
            activity = self._client.activity
            activity.successful_reauthentication.record()
            activity.reauthentication_latency_ms.record((trio.current_time() - self._last_began_at) * 1000)
        return response

    # --- both

    def _continue(self, token: bytes, version: int) -> tuple[SaslAuthenticateResponse, str | None]:
        """Return the response to a token, and the reason if it refuses the client."""
        self._authenticate_version = version
        try:
            challenge = self._take(token)
        except SaslAuthenticationError as error:
            message = str(error)
        except SaslError as error:
            # The reason could tell whether the user exists.
            again = "re-authentication" if self._is_authenticated else "authentication"
            message = (
                f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self._mechanism}"
            )
            return _refusal(message), self._reason(error)
        else:
            lifetime_ms = self._session_lifetime_ms() if self.is_complete else 0
            return SaslAuthenticateResponse(
                error_message=None, auth_bytes=challenge, session_lifetime_ms=lifetime_ms if version else 0
            ), None
        return _refusal(message), self._reason(SaslAuthenticationError(message))

    def _take(self, token: bytes) -> bytes:
        """Return the exchange's answer to a token, and set the client's identity if the exchange is complete."""
        assert self._exchange is not None
        challenge = self._exchange.respond(token)
        if self._exchange.authorization_id is None:
            return challenge
        principal = KafkaPrincipal(USER_TYPE, self._exchange.authorization_id, self._exchange.token_authenticated)
        client = self._client
        if self._is_authenticated and principal != client.principal:
            raise SaslAuthenticationError(
                f"Cannot change principals during re-authentication from {client.principal}: {principal}"
            )
        client.principal = principal
        self._is_authenticated = True
        self._state = State.COMPLETE
        lifetime_ms = self._session_lifetime_ms()
        client.session_expires_at = trio.current_time() + lifetime_ms / 1000 if lifetime_ms else None
        return challenge

    def _session_lifetime_ms(self) -> int:
        """Return the milliseconds until the client must authenticate again, 0 if it need not.

        The session ends with the credential, and after ``connections.max.reauth.ms`` if that is set.
        """
        longest_ms = self._rules.longest_session_ms.get(self._mechanism, 0)
        expires_at_ms = self._exchange.expires_at_ms if self._exchange else None
        if expires_at_ms is None:
            return longest_ms
        remaining_ms = max(1, expires_at_ms - int(time.time() * 1000))
        return min(longest_ms, remaining_ms) if longest_ms else remaining_ms

    def _reason(self, error: Exception) -> str:
        detail = self._exchange.reason if isinstance(self._exchange, OAuthBearerServer) else None
        return f"{error}: {detail}" if detail else str(error)


def _refusal(message: str) -> SaslAuthenticateResponse:
    # The message may repeat what the client has sent.
    return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=printable(message))


def _error_code(answer: Answer | None) -> int:
    """Return the error code of an answer to ApiVersions, which follows the correlation id in all versions."""
    frame = b"".join(bytes(part) for part in answer or () if isinstance(part, BUFFERS))
    return int.from_bytes(frame[4:6], "big", signed=True)


def _named(key: int) -> str:
    try:
        return ApiKey(key).name
    except ValueError:
        return str(key)


def _decoded(cls: type[Request], key: ApiKey, frame: memoryview, header: Header) -> Request:
    """Return the request in a frame. Raises DecodeError."""
    position = header.end
    if request_header_version(key, header.api_version) >= 2:
        position = skip_tagged_fields(frame, position)
    if position > len(frame):
        raise DecodeError("a frame ends in its header")
    return decode(cls, frame[position:], header.api_version)


def _encoded(response: Message, key: ApiKey, header: Header) -> Answer:
    head = header.correlation_id.to_bytes(4, "big", signed=True)
    if response_header_version(key, header.api_version) >= 1:
        head += b"\0"
    return [head, encode(response, header.api_version)]
