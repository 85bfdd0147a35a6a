"""A client's login that is repeated at each broker of a cluster behind one address.

The exchange of PLAIN and of OAUTHBEARER is one token, which any broker takes. That of SCRAM answers a challenge of one
broker, so a gateway without the password cannot repeat it.
"""

from __future__ import annotations

from typing import NamedTuple

from ..broker.server.client_connection import Hangup
from ..broker.server.request_header_cy import Header
from ..protocol.apis import ApiKey
from ..protocol.errors import DecodeError
from ..protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ..protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from .frames import read_answer, request_frame
from .link import Link
from .stream import LinkLostError

MECHANISMS = frozenset({"PLAIN", "OAUTHBEARER"})
"""The mechanisms whose exchange can be repeated."""
FIRST_VERSION_WITH_AUTHENTICATE = 1


class ReplayedLogin(NamedTuple):
    """A client's mechanism and token."""

    mechanism: str
    token: bytes
    client_id: str | None

    async def log_in(self, link: Link, hangup: Hangup) -> None:
        """Authenticate a new link as the client. Raises LinkLostError and ClientGoneError."""
        version = FIRST_VERSION_WITH_AUTHENTICATE
        header = Header(ApiKey.SASL_HANDSHAKE, version, 0, self.client_id, 0)
        try:
            handshake = SaslHandshakeRequest(mechanism=self.mechanism)
            frame = request_frame(ApiKey.SASL_HANDSHAKE, version, header, handshake)
            agreed = read_answer(ApiKey.SASL_HANDSHAKE, version, await link.exchange(frame, hangup))
            assert isinstance(agreed, SaslHandshakeResponse)
            frame = request_frame(ApiKey.SASL_AUTHENTICATE, 0, header, SaslAuthenticateRequest(auth_bytes=self.token))
            answer = read_answer(ApiKey.SASL_AUTHENTICATE, 0, await link.exchange(frame, hangup))
            assert isinstance(answer, SaslAuthenticateResponse)
        except DecodeError as error:
            link.lose()
            raise LinkLostError(f"broker {link.node} answered the login malformed: {error}") from error
        if agreed.error_code or answer.error_code:
            link.lose()
            raise LinkLostError(f"broker {link.node} refuses the client's login: {answer.error_message}")
