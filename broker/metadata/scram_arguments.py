"""The values of ``--add-scram``: users who exist before a cluster's first start (Kafka ``ScramParser``, KIP-900)."""

from __future__ import annotations

import base64
import binascii
import secrets

from ...protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from ...protocol.messages.cluster_metadata_records import UserScramCredentialRecord
from ...security.password import Password
from ...security.sasl import SCRAM_MECHANISMS
from ...security.scram import SALT_BYTES, salted_password
from .scram_credentials import FEWEST_ITERATIONS, MOST_ITERATIONS, altered_credentials

KNOWN = ("name", "salt", "iterations", "password", "saltedpassword")


class ScramArgumentError(ValueError):
    """An error for a malformed value; its text is Kafka's, without the password."""


def parse_scram_argument(text: str) -> UserScramCredentialRecord:
    """Return the record of a value such as ``SCRAM-SHA-256=[name=alice,password=secret]``.

    Raises ScramArgumentError.
    """
    mechanism, equals, rest = text.strip().partition("=")
    if not equals:
        raise ScramArgumentError("Failed to find equals sign in SCRAM argument")
    if mechanism not in SCRAM_MECHANISMS:
        raise ScramArgumentError(f"The add-scram mechanism {mechanism} is not supported.")
    parts = _components(rest.strip())
    iterations = _iterations(parts.get("iterations"), mechanism)
    if "name" not in parts:
        raise ScramArgumentError("You must supply 'name' to add-scram")
    if ("password" in parts) == ("saltedpassword" in parts):
        raise ScramArgumentError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if "saltedpassword" in parts:
        if "salt" not in parts:
            raise ScramArgumentError("You must supply 'salt' with 'saltedpassword' to add-scram")
        salt, salted = _decoded(parts["salt"], "salt"), _decoded(parts["saltedpassword"], "saltedPassword")
    else:
        salt = _decoded(parts["salt"], "salt") if "salt" in parts else secrets.token_bytes(SALT_BYTES)
        salted = salted_password(mechanism, Password(parts["password"]), salt, iterations)
    number = SCRAM_MECHANISMS.index(mechanism) + 1
    wanted = ScramCredentialUpsertion(
        name=parts["name"], mechanism=number, iterations=iterations, salt=salt, salted_password=salted
    )
    record = altered_credentials(wanted, {})
    assert isinstance(record, UserScramCredentialRecord)
    return record


def _components(text: str) -> dict[str, str]:
    """Return the parts of ``[name=value,name="value"]``."""
    for has_mark, end, mark in ((text.startswith("["), "start", "["), (text.endswith("]"), "end", "]")):
        if not has_mark:
            raise ScramArgumentError(f"Expected configuration string to {end} with {mark}")
    rest = text[1:-1]
    parts: dict[str, str] = {}
    while rest:
        key, equals, rest = rest.partition("=")
        if not equals:
            # The component may be a password that contains a comma.
            raise ScramArgumentError("No equals sign found in SCRAM component")
        if rest.startswith('"'):
            value, quote, rest = rest[1:].partition('"')
            if not quote or rest[:1] not in ("", ","):
                raise ScramArgumentError(f"The quoted value of {key.strip()[:20]} does not end")
            rest = rest[1:]
        else:
            value, _, rest = rest.partition(",")
        parts[key.strip()] = value
    if unknown := [key for key in parts if key not in KNOWN]:
        raise ScramArgumentError(f"Unknown SCRAM configurations: {', '.join(unknown)}")
    return parts


def _iterations(text: str | None, mechanism: str) -> int:
    if text is None:
        return FEWEST_ITERATIONS
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ScramArgumentError(f"Failed to parse iterations count: {text}")
    for is_wrong, words in (
        (int(text) < FEWEST_ITERATIONS, f">= {FEWEST_ITERATIONS}"),
        (int(text) > MOST_ITERATIONS, f"<= {MOST_ITERATIONS}"),
    ):
        if is_wrong:
            raise ScramArgumentError(f"The 'iterations' value must be {words} for add-scram using {mechanism}")
    return int(text)


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramArgumentError(f"Failed to decode given {what}") from None
