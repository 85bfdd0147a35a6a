"""SASL PLAIN (RFC 4616), as Kafka's ``PlainSaslServer`` and ``PlainServerCallbackHandler`` implement it."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import SaslAuthenticationError
from .password import Password

ABSENT = Password("")


class PlainServer:
    """The server's side; ``users`` are the passwords by name, from the listener's JAAS text."""

    token_authenticated = False
    expires_at_ms: int | None = None

    def __init__(self, users: Mapping[str, Password]) -> None:
        self._users = users
        self.authorization_id: str | None = None

    def respond(self, token: bytes) -> bytes:
        """Check the client's only token; see `ServerExchange.respond`."""
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise SaslAuthenticationError("Invalid SASL/PLAIN response: it is not UTF-8") from None
        if len(parts) != 3:
            raise SaslAuthenticationError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, name, password = parts
        if not name:
            raise SaslAuthenticationError("Authentication failed: username not specified")
        if not password:
            raise SaslAuthenticationError("Authentication failed: password not specified")
        known = self._users.get(name)
        # An unknown user takes as long as a wrong password.
        is_right = (known or ABSENT).matches(password)
        if known is None or not is_right:
            raise SaslAuthenticationError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.authorization_id = name
        return b""


class PlainClient:
    """The client's side."""

    def __init__(self, username: str, password: Password) -> None:
        self._username = username
        self._password = password

    def first(self) -> bytes:
        """Return the only token: authorization id (empty), user and password."""
        return f"\0{self._username}\0{self._password.value}".encode()

    def long_work(self, answer: bytes) -> None:
        """Return None: nothing is computed."""

    def respond(self, challenge: bytes) -> None:
        """Return None: the server's empty token ends the exchange."""
