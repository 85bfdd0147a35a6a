"""SASL OAUTHBEARER (RFC 7628), as Kafka's ``OAuthBearerSaslServer`` and ``OAuthBearerSaslClient`` implement it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .errors import SaslAuthenticationError, SaslError
from .password import Password

SEPARATOR = "\x01"
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f\u0080-\U0010ffff]|=2C|=3D)+"
_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01", re.DOTALL
)
_AUTHORIZATION = re.compile(r"(?P<scheme>[\w]+)[ ]+(?P<token>[-_\.a-zA-Z0-9]+)")


class InvalidTokenError(Exception):
    """An error for a token that the server does not accept; its text is for the log and never has the token."""


@dataclass(frozen=True, slots=True)
class AcceptedToken:
    """A token that the server accepted."""

    principal_name: str
    expires_at_ms: int


TokenCheck = Callable[[str], AcceptedToken]
"""Checks a token in compact form. Raises InvalidTokenError."""


class OAuthBearerServer:
    """The server's side of one exchange.

    A client with an invalid token is told so in a challenge, and fails with the message after it.
    """

    token_authenticated = False

    def __init__(self, check: TokenCheck) -> None:
        self._check = check
        self._refusal: str | None = None
        self.reason: str | None = None
        """Reason for which the token was refused, for the log."""
        self.authorization_id: str | None = None
        self.expires_at_ms: int | None = None

    def respond(self, token: bytes) -> bytes:
        """Check the client's token, or end a failed exchange; see `ServerExchange.respond`."""
        if self._refusal is not None:
            if token == SEPARATOR.encode():
                raise SaslAuthenticationError(self._refusal)
            raise SaslError("Invalid OAUTHBEARER client message after a refusal")
        authorization_id, bearer = _parsed(token)
        try:
            accepted = self._check(bearer)
        except InvalidTokenError as error:
            self.reason = str(error)
            self._refusal = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
            return self._refusal.encode()
        if authorization_id not in ("", accepted.principal_name):
            raise SaslAuthenticationError(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({accepted.principal_name})"
            )
        self.authorization_id = accepted.principal_name
        self.expires_at_ms = accepted.expires_at_ms
        return b""


def _parsed(message: bytes) -> tuple[str, str]:
    """Return the authorization id and the token of a client's first message. Raises SaslError."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise SaslError("Invalid OAUTHBEARER client first message: it is not UTF-8") from None
    found = _FIRST.fullmatch(text)
    if found is None:
        raise SaslError("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split(SEPARATOR) if pair)
    if "auth" not in pairs:
        raise SaslError("Invalid OAUTHBEARER client first message: 'auth' not specified")
    authorization = _AUTHORIZATION.fullmatch(pairs["auth"])
    if authorization is None or authorization["scheme"].lower() != "bearer":
        raise SaslError("Invalid OAUTHBEARER client first message: invalid scheme in 'auth'")
    name = (found["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return name, authorization["token"]


class OAuthBearerClient:
    """The client's side of one exchange."""

    def __init__(self, token: Password, extensions: Mapping[str, str] | None = None) -> None:
        self._token = token
        self._extensions = dict(extensions or {})

    def first(self) -> bytes:
        """Return the token and the extensions (KIP-342)."""
        pairs = {"auth": f"Bearer {self._token.value}", **self._extensions}
        return ("n,," + "".join(f"{SEPARATOR}{name}={value}" for name, value in pairs.items()) + SEPARATOR * 2).encode()

    def long_work(self, answer: bytes) -> None:
        """Return None: nothing is computed."""

    def respond(self, challenge: bytes) -> bytes | None:
        """Return None for an empty challenge, the end; answer the challenge of a refusal, which the error follows."""
        return SEPARATOR.encode() if challenge else None
