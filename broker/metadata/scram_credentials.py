"""SCRAM credentials (RFC 5802, KIP-554): conversion of a client's request to the stored record."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import TypeAlias

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.alter_user_scram_credentials import ScramCredentialDeletion, ScramCredentialUpsertion
from ...protocol.messages.cluster_metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord

MECHANISMS = {1: "sha256", 2: "sha512"}
"""Hash of each mechanism: SCRAM-SHA-256 and SCRAM-SHA-512."""

FEWEST_ITERATIONS, MOST_ITERATIONS = 4096, 16384

Alteration: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion


def altered_credentials(
    alteration: Alteration, known: Mapping[tuple[str, int], UserScramCredentialRecord]
) -> UserScramCredentialRecord | RemoveUserScramCredentialRecord:
    """Return the metadata record for the alteration.

    Raises BrokerError UNSUPPORTED_SASL_MECHANISM, UNACCEPTABLE_CREDENTIAL, RESOURCE_NOT_FOUND with Kafka's message.
    """
    if not alteration.name:
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if alteration.mechanism not in MECHANISMS:
        raise BrokerError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(alteration, ScramCredentialUpsertion):
        return _credential(alteration)
    if (alteration.name, alteration.mechanism) not in known:
        message = "Attempt to delete a user credential that does not exist"
        raise BrokerError(ErrorCode.RESOURCE_NOT_FOUND, message)
    return RemoveUserScramCredentialRecord(name=alteration.name, mechanism=alteration.mechanism)


def _credential(wanted: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    if wanted.iterations < FEWEST_ITERATIONS:
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if wanted.iterations > MOST_ITERATIONS:
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    digest = MECHANISMS[wanted.mechanism]
    salted_password = bytes(wanted.salted_password)
    client_key = hmac.digest(salted_password, b"Client Key", digest)
    return UserScramCredentialRecord(
        name=wanted.name,
        mechanism=wanted.mechanism,
        salt=bytes(wanted.salt),
        stored_key=hashlib.new(digest, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", digest),
        iterations=wanted.iterations,
    )
