"""The conversion of a segment to another message format, verified record by record, with an account of the losses.

Stored batches are converted in groups. Batches that have no equivalent in the target format are left out first:
control batches and, as they could no longer be told apart, records of aborted transactions (below v2). The rest is
converted, both sides are decoded, and their columns must be equal except for what the target format lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.errors import BrokerError
from ...protocol.records import v0, v1, v2
from ...protocol.records.batches import BatchView, iter_batches, iter_records
from ...protocol.records.compression import Codec
from ...protocol.records.convert import ALL_OFFSETS, down_convert_batch, up_convert
from ...storage.index.transaction_index import AbortedTransaction
from ..columns.record_batches import RecordBatches, RecordOptions
from ..columns.schemas import Mode, arrow_schema
from ..errors import DamagedLogError

STRETCH_BYTES = 4 << 20
"""The approximate number of stored bytes that are converted and verified at once."""


@dataclass(slots=True)
class Account:
    """The account of a conversion and its losses; counts of records unless stated otherwise."""

    records: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    control_batches: int = 0
    """Control batches that were left out: below v2 there are no transactions."""
    aborted_records: int = 0
    """Records of aborted transactions that were left out."""
    headers: int = 0
    """Single headers that were lost."""
    timestamps: int = 0
    """Records whose timestamp was lost."""
    producer_batches: int = 0
    """Batches that lost their producer id and sequence number."""
    recoded_batches: int = 0
    """Batches whose zstd compression, which came with v2, was replaced by another codec."""

    def add(self, other: Account) -> None:
        """Add the counts of `other`."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True)
class Conversion:
    """The conversion of one partition's batches. `zstd_as` replaces zstd below v2."""

    topic: str
    partition: int
    to_magic: int
    zstd_as: Codec = Codec.GZIP
    aborted: Sequence[AbortedTransaction] = field(default=())

    def convert(self, stored: memoryview, account: Account) -> Iterator[bytes]:
        """Yield the converted batches of `stored`, which holds complete ones, in groups.

        Raises DamagedLogError if a batch is damaged, or if a converted record would differ from its original.
        """
        for kept in self._stretches(stored, account):
            try:
                converted = b"".join(self._converted(memoryview(kept), account))
            except BrokerError as fault:
                raise self._damage(kept, str(fault)) from fault
            self._verify(kept, converted, account)
            account.bytes_after += len(converted)
            yield converted

    def _stretches(self, stored: memoryview, account: Account) -> Iterator[bytes]:
        """Yield the batches to convert, about `STRETCH_BYTES` at a time."""
        kept: list[memoryview] = []
        size_bytes = 0
        for batch in iter_batches(stored):
            if not batch.crc_is_valid:
                raise DamagedLogError(self.topic, self.partition, batch.last_offset, "the checksum does not fit")
            account.bytes_before += batch.size_bytes
            if self._leaves_out(batch, account):
                continue
            if batch.producer_id >= 0 and self.to_magic < v2.MAGIC:
                account.producer_batches += 1
            kept.append(batch.view)
            size_bytes += batch.size_bytes
            if size_bytes >= STRETCH_BYTES:
                yield b"".join(kept)
                kept, size_bytes = [], 0
        if kept:
            yield b"".join(kept)

    def _leaves_out(self, batch: BatchView, account: Account) -> bool:
        if self.to_magic == v2.MAGIC:
            return False
        if batch.is_control:
            account.control_batches += 1
            return True
        if batch.is_transactional and any(
            each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset <= each.last_offset
            for each in self.aborted
        ):
            account.aborted_records += batch.record_count or 0
            return True
        return False

    def _converted(self, kept: memoryview, account: Account) -> Iterable[bytes | bytearray | memoryview]:
        if self.to_magic == v2.MAGIC:
            return (converted.data for converted in up_convert(kept, ALL_OFFSETS))
        return (self._lowered(batch, account) for batch in iter_batches(kept))

    def _lowered(self, batch: BatchView, account: Account) -> bytes | bytearray | memoryview:
        """Return one batch in format v0 or v1."""
        if batch.magic == self.to_magic:
            return batch.view
        if batch.magic < self.to_magic:
            return v1.build_message_set(list(iter_records(batch)), codec=batch.codec)
        if batch.codec is Codec.ZSTD:
            account.recoded_batches += 1
            again = v2.build_batch(
                list(iter_records(batch)),
                base_offset=batch.base_offset,
                codec=self.zstd_as,
                timestamp_type=batch.timestamp_type,
                max_timestamp=batch.max_timestamp,
            )
            batch = next(iter_batches(again))
        return down_convert_batch(batch, self.to_magic, ALL_OFFSETS).data

    def _verify(self, before: bytes, after: bytes, account: Account) -> None:
        original, made = self._decoded(before), self._decoded(after)
        account.records += original.num_rows
        if made.num_rows != original.num_rows:
            raise self._damage(before, f"{original.num_rows} records became {made.num_rows}")
        columns = ["offset", "key", "value"]
        lost_times = 0
        if self.to_magic > v0.MAGIC:
            columns.append("timestamp")
        else:
            lost_times = pc.sum(pc.not_equal(original["timestampType"], -1)).as_py() or 0
        if self.to_magic == v2.MAGIC:
            columns.append("headers")
        else:
            account.headers += pc.sum(pc.list_value_length(original["headers"])).as_py() or 0
        account.timestamps += lost_times
        for name in columns:
            if not made[name].equals(original[name]):
                raise self._damage(before, f"the column {name} would not be the same")

    def _decoded(self, batches: bytes) -> pa.Table:
        reader = RecordBatches(self.topic, self.partition, RecordOptions())
        rows = list(reader.read(memoryview(batches)))
        if reader.position != len(batches):
            raise self._damage(batches, "a batch is incomplete")
        return pa.Table.from_batches(rows, schema=arrow_schema(Mode.RECORDS)).combine_chunks()

    def _damage(self, batches: bytes, problem: str) -> DamagedLogError:
        first = next(iter_batches(batches), None)
        return DamagedLogError(self.topic, self.partition, None if first is None else first.last_offset, problem)
