"""The two sides of a SASL exchange, without input or output, and the table of mechanisms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .errors import SecuritySettingError

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
GSSAPI = "GSSAPI"
SCRAM_MECHANISMS = (SCRAM_SHA_256, SCRAM_SHA_512)
MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)
"""The mechanisms that Gregor supports."""


class ServerExchange(Protocol):
    """The server's side of one exchange. `respond` is called with each token until `authorization_id` is set."""

    authorization_id: str | None
    """The name of the authenticated client, None until the exchange is complete."""
    token_authenticated: bool
    """Whether the client's secret was a delegation token."""
    expires_at_ms: int | None
    """Time at which the client's credential expires, in ms since 1970; None if the credential does not expire."""

    def respond(self, token: bytes) -> bytes:
        """Return the server's answer to the client's token. Raises SaslAuthenticationError or SaslError."""


class ClientExchange(Protocol):
    """The client's side of one exchange."""

    def first(self) -> bytes:
        """Return the first token."""

    def long_work(self, answer: bytes) -> Callable[[], object] | None:
        """Return what to compute in a thread before `respond` takes the token in ``answer``, None if that is short."""

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the answer to the server's token, None once the exchange is complete.

        Raises SaslAuthenticationError if the server's token is wrong or refuses the client.
        """


def check_mechanism(name: str, key: str) -> str:
    """Return ``name`` if Gregor supports the mechanism. Raises SecuritySettingError that names ``key``."""
    if name == GSSAPI:
        raise SecuritySettingError(
            f"{key}: GSSAPI (Kerberos) is not supported by Gregor; set one of {', '.join(MECHANISMS)}"
        )
    if name not in MECHANISMS:
        raise SecuritySettingError(f"{key}: unknown SASL mechanism {name}; Gregor supports {', '.join(MECHANISMS)}")
    return name
