"""Checks of a record before a batch is started (key, value and headers: `appending_cy.py`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import index

from ..errors import InvalidTopicError

Headers = Sequence[tuple[str | bytes, bytes | None]]
"""Names are text in Kafka; names as bytes, which a consumer's records have, are read as UTF-8."""

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
MAX_TOPIC_LENGTH = 249
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic(topic: str) -> None:
    """Raise TypeError unless `topic` is text, InvalidTopicError unless it is a valid name (Kafka's
    `Topic.validate`).
    """
    if not isinstance(topic, str):
        raise TypeError(f"a topic must be str, not {type(topic).__name__}")
    if len(topic) > MAX_TOPIC_LENGTH or topic in (".", "..") or _LEGAL_TOPIC.fullmatch(topic) is None:
        raise InvalidTopicError(topic)


def check_partition(partition: int) -> int:
    """Return the partition as int. Raises TypeError, or ValueError if it is negative (Kafka's `ProducerRecord`)."""
    number = _whole(partition, "partition")
    if not 0 <= number <= MAX_INT32:
        raise ValueError(f"a partition must be from 0 to {MAX_INT32}, not {number}")
    return number


def check_offset(offset: int) -> int:
    """Return the offset as int. Raises TypeError, or ValueError if it is negative (Kafka's `Consumer.seek`)."""
    number = _whole(offset, "offset")
    if not 0 <= number <= MAX_INT64:
        raise ValueError(f"an offset must be from 0 to {MAX_INT64}, not {number}")
    return number


def check_timestamp(timestamp_ms: int) -> int:
    """Return the time as int. Raises TypeError, or ValueError if it is negative (Kafka's `ProducerRecord`)."""
    number = _whole(timestamp_ms, "timestamp_ms")
    if not 0 <= number <= MAX_INT64:
        raise ValueError(f"a timestamp_ms must be from 0 to {MAX_INT64}, not {number}")
    return number


def _whole(value: int, what: str) -> int:
    if type(value) is int:
        return value
    if isinstance(value, bool):
        raise TypeError(f"a {what} must be int, not bool")
    try:
        # This also accepts numpy's integers, which are not instances of int.
        return index(value)
    except TypeError:
        raise TypeError(f"a {what} must be int, not {type(value).__name__}") from None
