"""The sources of the credentials that the listeners of a node check."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .key_reader import KeyReader

if TYPE_CHECKING:
    # A node without SASL listeners imports no mechanism.
    from .credentials import KnownUsers, TokenCredentials


@dataclass(frozen=True, slots=True)
class CredentialSources:
    """The sources of the credentials that the mechanisms of a broker check."""

    users: KnownUsers
    tokens: TokenCredentials | None = None
    key_reader: KeyReader = field(default_factory=KeyReader)
    """Reads the JWKS of all listeners."""
