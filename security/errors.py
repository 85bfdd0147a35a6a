"""The errors of this room. None of their texts holds a secret."""

from __future__ import annotations


class SecuritySettingError(ValueError):
    """An error for an invalid value of a security key; its text is one line that names the key."""


class SaslAuthenticationError(Exception):
    """A refusal of a SASL exchange whose text is also the peer's answer (Kafka: SaslAuthenticationException)."""


class SaslError(Exception):
    """A refusal of a SASL exchange for a reason that the peer must not learn (Kafka: SaslException).

    The reason may tell whether a user exists, so it is for the log only.
    """


class HttpError(Exception):
    """A request that was not answered with status 200; `is_final` says that another attempt cannot help."""

    def __init__(self, reason: str, *, is_final: bool = False, body: bytes = b"") -> None:
        super().__init__(reason)
        self.is_final = is_final
        self.body = body
        """The body of an answer with another status."""
