"""Rules for topic names, and for pairs of names that collide (Kafka `Topic`)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...protocol.errors import BrokerError, ErrorCode

LONGEST = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def why_invalid(name: str) -> str | None:
    """Return Kafka's message for an invalid name, ``None`` for a valid one."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > LONGEST:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {LONGEST}"
    if not _LEGAL.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    return None


def validate_topic_name(name: str) -> None:
    """Raise BrokerError INVALID_TOPIC_EXCEPTION for a name that no topic can have."""
    reason = why_invalid(name)
    if reason is not None:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def metric_name(name: str) -> str:
    """Return the name with dots as underscores: topics that share it would share their metrics."""
    return name.replace(".", "_")


def validate_no_collision(name: str, existing: Iterable[str]) -> None:
    """Raise BrokerError INVALID_TOPIC_EXCEPTION if an existing topic differs in dots and underscores only."""
    if "." not in name and "_" not in name:
        return
    wanted = metric_name(name)
    for other in existing:
        if other != name and metric_name(other) == wanted:
            reason = f"Topic '{name}' collides with existing topic: {other}"
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
