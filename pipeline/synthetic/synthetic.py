"""Generated topics that are the same in every run: a recipe, a partition and an index determine a record.

A partition's records are in batches of `Recipe.batch_records`, and each batch has its own random numbers, seeded by
recipe, partition and batch. So batch n does not depend on the batches before it, and an interrupted run can
continue.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ...client.producer.partitioner import partition_for_key
from ...protocol.records import v0, v1, v2
from ...protocol.records.compression import Codec
from ...protocol.records.record import Record
from ..errors import PipelineError

FILLER = b"the quick brown fox jumps over the lazy dog; "


class RecipeError(PipelineError):
    """An invalid recipe; `str()` names the option to change."""


@dataclass(frozen=True)
class Recipe:
    """The recipe of a generated topic.

    Keys are `key-0` to `key-(keys - 1)`; key n is drawn in proportion to (n + 1) ** -key_skew, so 0 is a uniform
    distribution and 1 is Zipf's law. A record with a key is in the partition that Kafka's Java producer chooses;
    without keys all partitions get the same number. The share `repetitive` of each value is text that compresses to
    almost nothing. Timestamps begin at `first_timestamp_ms` and advance by `interval_ms`.
    """

    seed: int
    records: int
    partitions: int
    value_bytes: int
    keys: int = 0
    key_skew: float = 0.0
    repetitive: float = 0.5
    magic: int = v2.MAGIC
    codec: Codec = Codec.NONE
    batch_records: int = 500
    first_timestamp_ms: int = 1_577_836_800_000
    interval_ms: float = 1.0

    def __post_init__(self) -> None:
        """Raise RecipeError for an invalid recipe."""
        if self.partitions < 1 or self.records < 0 or self.value_bytes < 0 or self.keys < 0 or self.batch_records < 1:
            raise RecipeError("partitions and batch records are at least 1; records, value bytes and keys at least 0")
        if not 0 <= self.repetitive <= 1:
            raise RecipeError(f"the repetitive share is between 0 and 1, not {self.repetitive}")
        if self.magic < v2.MAGIC and self.codec is Codec.ZSTD:
            raise RecipeError("zstd came with message format v2; choose another codec or format")

    @cached_property
    def _keys_by_partition(self) -> list[tuple[list[bytes], list[float]]]:
        """The keys of each partition and the running sums of their weights."""
        chosen: list[tuple[list[bytes], list[float]]] = [([], []) for _ in range(self.partitions)]
        for number in range(self.keys):
            key = b"key-%d" % number
            keys, weights = chosen[partition_for_key(key, self.partitions)]
            keys.append(key)
            weights.append((number + 1) ** -self.key_skew)
        return [(keys, list(itertools.accumulate(weights))) for keys, weights in chosen]

    def partition_records(self) -> list[int]:
        """Return the record count of each partition; their sum is `records`."""
        sums = [weights[-1] if weights else 0.0 for _, weights in self._keys_by_partition] if self.keys else []
        total = sum(sums)
        shares = [each / total for each in sums] if total else [1 / self.partitions] * self.partitions
        counts = [int(share * self.records) for share in shares]
        by_loss = sorted(range(self.partitions), key=lambda index: counts[index] - shares[index] * self.records)
        for index in itertools.islice(itertools.cycle(by_loss), self.records - sum(counts)):
            counts[index] += 1
        return counts

    def batches(self, partition: int, *, from_offset: int = 0, end_offset: int | None = None) -> Iterator[bytes]:
        """Yield the partition's batches as in a log, from the one with `from_offset` up to `end_offset` (exclusive).

        Without `end_offset` up to the last one; both should be the first offset of a batch, or the range is widened
        to that.
        """
        count = self.partition_records()[partition]
        stop = count if end_offset is None else min(end_offset, count)
        for first in range(from_offset - from_offset % self.batch_records, stop, self.batch_records):
            yield self._batch(partition, first, min(self.batch_records, count - first))

    def _batch(self, partition: int, first: int, count: int) -> bytes:
        dice = random.Random(f"{self.seed}/{partition}/{first}")
        keys: list[bytes] | list[None] = [None] * count
        if self.keys:
            known, sums = self._keys_by_partition[partition]
            keys = dice.choices(known, cum_weights=sums, k=count)
        filler_bytes = int(self.value_bytes * self.repetitive)
        filler = (FILLER * (filler_bytes // len(FILLER) + 1))[:filler_bytes]
        noise_bytes = self.value_bytes - filler_bytes
        records = [
            Record(
                first + index,
                self.first_timestamp_ms + int((first + index) * self.interval_ms),
                key,
                dice.randbytes(noise_bytes) + filler,
            )
            for index, key in enumerate(keys)
        ]
        if self.magic == v0.MAGIC:
            return v0.build_message_set(records, codec=self.codec)
        if self.magic == v1.MAGIC:
            return v1.build_message_set(records, codec=self.codec)
        return v2.build_batch(records, base_offset=first, codec=self.codec)
