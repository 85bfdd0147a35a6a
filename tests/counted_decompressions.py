"""A count of the decompressions in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gregor.protocol.records import compression
from gregor.protocol.records.compression import Codec


class Decompressions:
    """A counter of batches that were decompressed since the last `taken`."""

    def __init__(self) -> None:
        self._count = 0

    def taken(self) -> int:
        """Return the count and begin again."""
        count, self._count = self._count, 0
        return count

    def one_more(self) -> None:
        """Count a decompression."""
        self._count += 1


def count_decompressions(monkeypatch: pytest.MonkeyPatch) -> Decompressions:
    """Count from now on, to the end of the test."""
    counted = Decompressions()
    for codec, decompress in list(compression._DECOMPRESSORS.items()):
        if codec is not Codec.NONE:

            def counting(data: object, magic: int, limit: int, inner: object = decompress) -> Iterator[bytes]:
                counted.one_more()
                return inner(data, magic, limit)  # type: ignore[operator, no-any-return]

            monkeypatch.setitem(compression._DECOMPRESSORS, codec, counting)
    return counted
