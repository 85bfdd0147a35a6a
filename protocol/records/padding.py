"""Fake batches that fill the rest of a promised size: clients take them for an incomplete batch, which they ignore."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

FAKE_BATCH_HEAD = Struct(">qi")
"""Offset (-1) and length of a fake batch."""
FAKE_BATCH_BYTES = 128 * 1024
"""The most bytes of one fake batch; longer padding has several."""
LEAST_FAKE_LENGTH = 61
"""The least length in a fake batch's header: enough for the header of any format."""
NOTHING_SIZE = FAKE_BATCH_HEAD.size

_ZEROS = memoryview(bytes(FAKE_BATCH_BYTES))


def padding(size_bytes: int) -> Iterator[memoryview]:
    """Return `size_bytes` of over-long fake batches (Kafka `LazyDownConversionRecordsSend.buildOverflowBatch`)."""
    remaining = size_bytes
    while remaining > 0:
        covered = min(remaining, FAKE_BATCH_BYTES)
        head = memoryview(FAKE_BATCH_HEAD.pack(-1, max(remaining + 1, LEAST_FAKE_LENGTH)))[:covered]
        yield head
        if covered > len(head):
            yield _ZEROS[: covered - len(head)]
        remaining -= covered
