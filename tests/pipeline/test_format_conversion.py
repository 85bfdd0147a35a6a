"""Conversion of segments between message formats: kept, lost and counted, and refused parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")

from gregor.pipeline.errors import DamagedLogError
from gregor.pipeline.logs.format_conversion import Account, Conversion
from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.control import ControlType, encode_key
from gregor.protocol.records.record import Header, Record
from gregor.storage.index.transaction_index import AbortedTransaction

OLD_CODECS = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
TEXTS = st.one_of(st.none(), st.binary(max_size=20))


@st.composite
def stored_batches(draw: st.DrawFn) -> bytes:
    """Return batches of all formats one after the other."""
    offset = draw(st.integers(0, 1000))
    stored = b""
    for _ in range(draw(st.integers(1, 6))):
        magic, codec = draw(st.integers(0, 2)), draw(OLD_CODECS)
        records = []
        for _ in range(draw(st.integers(1, 5))):
            headers = tuple(Header(b"h", value) for value in draw(st.lists(TEXTS, max_size=2))) if magic == 2 else ()
            timestamp = draw(st.integers(0, 10**12)) if magic else -1
            records.append(Record(offset, timestamp, draw(TEXTS), draw(TEXTS), headers))
            offset += 1
        if magic == v2.MAGIC:
            stored += v2.build_batch(records, base_offset=records[0].offset, codec=codec)
        elif magic == v1.MAGIC:
            stored += v1.build_message_set(records, codec=codec)
        else:
            stored += v0.build_message_set(records, codec=codec)
    return stored


def records_of(stored: bytes) -> list[Record]:
    """Return all records, decoded."""
    return [record for batch in iter_batches(stored) for record in iter_records(batch)]


def converted(stored: bytes, conversion: Conversion) -> tuple[bytes, Account]:
    """Return the converted batches, and the counts."""
    account = Account()
    return b"".join(conversion.convert(memoryview(stored), account)), account


@given(stored_batches(), st.integers(0, 2))
def test_fields_that_the_target_format_has_are_kept(stored: bytes, to_magic: int) -> None:
    before = records_of(stored)
    made, account = converted(stored, Conversion("t", 0, to_magic))
    assert {batch.magic for batch in iter_batches(made)} == {to_magic}
    expected = [
        record._replace(timestamp=record.timestamp if to_magic else -1, headers=record.headers if to_magic == 2 else ())
        for record in before
    ]
    assert records_of(made) == expected
    assert account.records == len(before)
    assert account.bytes_before == len(stored)
    assert account.bytes_after == len(made)
    assert account.headers == (sum(len(record.headers) for record in before) if to_magic < 2 else 0)


def transaction(first_offset: int, producer_id: int, value: bytes) -> bytes:
    """Return two records of a transaction."""
    records = [Record(first_offset + index, 5, None, value) for index in range(2)]
    return v2.build_batch(
        records,
        base_offset=first_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    """Return the end of a transaction."""
    record = Record(offset, 5, encode_key(kind), b"\x00\x00\x00\x00\x00\x00")
    return v2.build_batch(
        [record], base_offset=offset, producer_id=producer_id, producer_epoch=0, is_control=True, is_transactional=True
    )


def test_aborted_records_are_removed_when_batches_are_converted_to_v1() -> None:
    stored = (
        transaction(0, 7, b"lost")
        + transaction(2, 8, b"kept")
        + marker(4, 7, ControlType.ABORT)
        + marker(5, 8, ControlType.COMMIT)
        + transaction(6, 7, b"later")
        + marker(8, 7, ControlType.COMMIT)
    )
    aborted = (AbortedTransaction(7, 0, 4, 0),)
    made, account = converted(stored, Conversion("t", 0, 1, aborted=aborted))
    assert [(r.offset, r.value) for r in records_of(made)] == [(2, b"kept"), (3, b"kept"), (6, b"later"), (7, b"later")]
    assert (account.aborted_records, account.control_batches, account.producer_batches) == (2, 3, 2)
    same, account = converted(stored, Conversion("t", 0, 2, aborted=aborted))
    assert same == stored
    assert account.control_batches == 0


def test_zstd_is_recoded_below_v2() -> None:
    records = [Record(index, 5, b"k", b"v" * 100) for index in range(50)]
    stored = v2.build_batch(records, codec=Codec.ZSTD)
    made, account = converted(stored, Conversion("t", 0, 1, zstd_as=Codec.LZ4))
    assert records_of(made) == records
    assert [batch.codec for batch in iter_batches(made)] == [Codec.LZ4]
    assert account.recoded_batches == 1


@pytest.mark.parametrize("to_magic", [0, 1, 2])
def test_damage_is_named_with_its_place(to_magic: int) -> None:
    stored = bytearray(v2.build_batch([Record(41, 5, b"k", b"v")], base_offset=41))
    stored[-1] ^= 1
    with pytest.raises(DamagedLogError, match="t-3 offset 41: the checksum does not fit"):
        converted(bytes(stored), Conversion("t", 3, to_magic))
