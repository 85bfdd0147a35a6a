"""Batches of zstd for readers of format v0 and v1: refused, or compressed by another codec."""

from __future__ import annotations

import pytest

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records import v0, v2
from gregor.protocol.records.batches import BatchView, iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.conversion_need import needs_conversion
from gregor.protocol.records.lazy import LazyConversion, plan_down_conversion, plan_up_conversion
from gregor.protocol.records.record import Header, Record


def batch(codec: Codec, base_offset: int) -> bytes:
    """Return a batch of ten compressible records."""
    records = [Record(base_offset + n, 1000, b"k", bytes(500)) for n in range(10)]
    return v2.build_batch(records, base_offset=base_offset, codec=codec)


@pytest.mark.parametrize("zstd_codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("to_magic", [0, 1])
@pytest.mark.parametrize("first", [Codec.ZSTD, Codec.NONE])
def test_zstd_is_replaced(record_build: str, to_magic: int, zstd_codec: Codec, first: Codec) -> None:
    """The codec replaces zstd in the first batch, from which the promised size is computed, and in later chunks."""
    codecs = [first, Codec.ZSTD, Codec.NONE, Codec.ZSTD]
    stored = memoryview(b"".join(batch(codec, 10 * n) for n, codec in enumerate(codecs)))
    found: list[int] = []
    while len(found) < 40:
        part = stored[sum(len(batch(codec, 0)) for codec in codecs[: len(found) // 10]) :]
        plan = plan_down_conversion(part, to_magic, len(found), chunk_bytes=4096, zstd_codec=zstd_codec)
        converted = b"".join(bytes(piece) for piece in plan.pieces(bytearray(8192)))
        assert len(converted) == plan.size
        batches = list(iter_batches(converted))
        assert {each.codec for each in batches} <= {zstd_codec, Codec.NONE}
        offsets = [record.offset for each in batches for record in iter_records(each)]
        assert offsets, "a consumer gets at least the first batch"
        found += [offset for offset in offsets if offset >= len(found)]
    assert found == list(range(40))


def sent(plan: LazyConversion) -> bytes:
    """Return all bytes of a conversion, from a small buffer."""
    converted = b"".join(bytes(piece) for piece in plan.pieces(bytearray(8192)))
    assert len(converted) == plan.size
    return converted


@pytest.mark.parametrize("zstd_codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_zstd_is_replaced_in_batches_of_v2(record_build: str, zstd_codec: Codec) -> None:
    """Only the codec, the length and the CRC change; other batches are copied, large ones too, and v0 becomes v2."""
    header_only = v2.build_batch([], base_offset=10, last_offset=19, producer_id=7, producer_epoch=0, base_sequence=3)
    header_only = v2.with_body(memoryview(header_only), b"", Codec.ZSTD)
    large = v2.build_batch([Record(20, 1000, None, bytes(50_000))], base_offset=20)
    transactional = v2.build_batch(
        [Record(21, 1000, b"k", bytes(900), (Header(b"h", b"1"),))],
        base_offset=21,
        codec=Codec.ZSTD,
        producer_id=7,
        producer_epoch=1,
        base_sequence=5,
        is_transactional=True,
        leader_epoch=4,
    )
    old = v0.build_message(22, None, b"old")
    stored = memoryview(b"".join((batch(Codec.ZSTD, 0), header_only, large, transactional, old, batch(Codec.ZSTD, 30))))
    found: list[BatchView] = []
    position = 0
    ends = [each.end for each in iter_batches(stored)]
    while position < len(stored):
        plan = plan_up_conversion(stored[position:], 0, chunk_bytes=4096, zstd_codec=zstd_codec)
        found += iter_batches(sent(plan))
        position = ends[len(found) - 1]
    before = list(iter_batches(stored))
    assert [each.codec for each in found] == [zstd_codec, Codec.NONE, Codec.NONE, zstd_codec, Codec.NONE, zstd_codec]
    for after, original in zip(found, before, strict=True):
        assert after.crc_is_valid
        assert (after.base_offset, after.last_offset) == (original.base_offset, original.last_offset)
        assert (after.producer_id, after.base_sequence) == (original.producer_id, original.base_sequence)
        assert after.is_transactional == original.is_transactional
        expected = [] if original.record_count == 0 else list(iter_records(original))
        assert list(iter_records(after)) == expected
    assert bytes(found[2].view) == large


def test_readers_of_v2_without_zstd_need_a_conversion_of_zstd_only() -> None:
    zstd, gzip = memoryview(batch(Codec.ZSTD, 0)), memoryview(batch(Codec.GZIP, 0))
    assert not needs_conversion(zstd, 2)
    assert needs_conversion(zstd, 2, reads_zstd=False)
    assert not needs_conversion(gzip, 2, reads_zstd=False)


def test_zstd_is_refused_without_a_codec() -> None:
    """Kafka's answer."""
    with pytest.raises(BrokerError) as refusal:
        plan_down_conversion(memoryview(batch(Codec.ZSTD, 0)), 1, 0)
    assert refusal.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
