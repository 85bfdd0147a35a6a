"""The credentials of SCRAM clients: of users and of delegation tokens, both from the cluster's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ...protocol.messages.cluster_metadata_records import UserScramCredentialRecord
from ...security.sasl import SCRAM_SHA_256, SCRAM_SHA_512
from ...security.scram import CredentialLookup, KnownCredential, ScramCredential

SCRAM_NUMBERS = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}
"""The number of each mechanism in the protocol (Kafka ``ScramMechanism``)."""


class TokenCredentials(Protocol):
    """A source of the credentials of delegation tokens (`delegation_tokens.DelegationTokens`)."""

    def credential(self, token_id: str, mechanism: str) -> KnownCredential | None:
        """Return the credential of a token that has not expired, None if there is no such token."""


class KnownUsers(Protocol):
    """A source of the users' credentials (a `MetadataStore`)."""

    def scram_credentials(self) -> Mapping[tuple[str, int], UserScramCredentialRecord]:
        """Return the credentials by user and number of the mechanism."""


def credential_lookup(mechanism: str, users: KnownUsers, tokens: TokenCredentials | None) -> CredentialLookup:
    """Return the look-up of one mechanism's credentials."""

    def find(name: str, is_token: bool) -> KnownCredential | None:
        if is_token:
            return tokens.credential(name, mechanism) if tokens is not None else None
        record = users.scram_credentials().get((name, SCRAM_NUMBERS[mechanism]))
        if record is None:
            return None
        return KnownCredential(_credential(record), name)

    return find


def first_credential(mechanism: str, users: KnownUsers) -> ScramCredential | None:
    """Return the first user's credential for a mechanism, the same on each broker; None if there is none."""
    number = SCRAM_NUMBERS[mechanism]
    records = users.scram_credentials().items()
    return next((_credential(record) for (_, used), record in records if used == number), None)


def _credential(record: UserScramCredentialRecord) -> ScramCredential:
    return ScramCredential(bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations)
