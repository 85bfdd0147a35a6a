"""The tokens of a SASL exchange after SaslHandshake v0: frames without a header, which are passed on as they are."""

from __future__ import annotations

from ..protocol.errors import ErrorCode
from ..protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

TOKENS_OF_CLIENTS = {"PLAIN": 1, "OAUTHBEARER": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}
"""The number of tokens that a client sends before its first request, by mechanism; unknown for other mechanisms."""


def raw_tokens(version: int, request: SaslHandshakeRequest, response: SaslHandshakeResponse) -> int:
    """Return how many tokens without a header follow a handshake; change the answer to a mechanism without a number."""
    if version > 0 or response.error_code:
        return 0
    count = TOKENS_OF_CLIENTS.get(request.mechanism, 0)
    if not count:
        response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        response.mechanisms = [mechanism for mechanism in response.mechanisms if mechanism in TOKENS_OF_CLIENTS]
    return count
