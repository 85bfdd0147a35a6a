"""How large a record can get in a batch, asked before it is encoded."""

from collections.abc import Sequence

Headers = Sequence[tuple[str, bytes | None]]

MAX_RECORD_OVERHEAD = 21
"""Bytes that a record can take beyond its key, value and headers (Kafka DefaultRecord.MAX_RECORD_OVERHEAD)."""

_MAX_LENGTH_BYTES = 5


def record_size_bound(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The most bytes that the record can take in a batch of format v2."""
    size = MAX_RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        # UTF-8 takes at most four bytes a character; the exact count would mean encoding the name twice.
        size += 2 * _MAX_LENGTH_BYTES + (len(name) if name.isascii() else 4 * len(name))
        if content is not None:
            size += len(content)
    return size
