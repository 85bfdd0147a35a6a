"""The authenticated identity of a client, as Kafka's ``KafkaPrincipal``."""

from __future__ import annotations

from dataclasses import dataclass, field

USER_TYPE = "User"


@dataclass(frozen=True, slots=True)
class KafkaPrincipal:
    """A principal, written ``User:alice``. Equality ignores `token_authenticated`, as in Kafka."""

    principal_type: str
    name: str
    token_authenticated: bool = field(default=False, compare=False)
    """Whether the client authenticated with a delegation token (KIP-48)."""

    def __str__(self) -> str:
        return f"{self.principal_type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> KafkaPrincipal:
        """Return the principal of ``text`` (Kafka ``SecurityUtils.parseKafkaPrincipal``).

        Raises ValueError with Kafka's message unless the text is of the form TYPE:NAME.
        """
        principal_type, colon, name = text.partition(":")
        if not colon:
            raise ValueError(f"expected a string in format principalType:principalName but got {text}")
        return cls(principal_type, name)


ANONYMOUS = KafkaPrincipal(USER_TYPE, "ANONYMOUS")
"""The principal of clients that need no authentication."""
