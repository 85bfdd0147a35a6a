"""Conversion of compressed batches in one step: what readers get is what the codecs' libraries would have written."""

from __future__ import annotations

import random
import zlib

import lz4.frame
import pytest
import snappy

from gregor.protocol.records import recompression_cy, v2
from gregor.protocol.records.batches import complete_batch_at, iter_records
from gregor.protocol.records.compression import XERIAL_MAGIC, Codec, compress, decompress
from gregor.protocol.records.convert import convert_with_codec
from gregor.protocol.records.recompression_cy import Recompression
from gregor.protocol.records.record import Header, Record, TimestampType

WORDS = b"order region status deleted created warehouse 200 404 us-east-1 eu-west-2 user click".split()
TIMESTAMP = 1_700_000_000_000
HEADERS = (Header(b"trace", b"0123456789"), Header(b"", None))
MOST_RAW_BYTES = 512 * 1024
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def some_bytes(kind: str, size: int, source: random.Random) -> bytes | None:
    """Return `size` bytes that are more or less easy to compress, or None."""
    if kind == "null":
        return None
    if kind == "words":
        return b" ".join(source.choices(WORDS, k=size))[:size]
    if kind == "noise":
        return source.randbytes(size)
    if kind == "zeros":
        return bytes(size)
    return (source.randbytes(7) * (size // 7 + 1))[:size]


def records_of(kind: str, size: int, count: int, seed: int = 1) -> list[Record]:
    """Return `count` records of values of about `size` bytes, with keys, headers and gaps between offsets."""
    source = random.Random(seed)
    offsets = sorted(source.sample(range(2 * count), count))
    return [
        Record(
            offset,
            TIMESTAMP + source.randrange(-500, 500),
            source.choice([None, b"", b"key-%d" % offset]),
            some_bytes(kind, source.choice([size, size // 2, size]), source),
            HEADERS if offset % 7 == 0 else (),
        )
        for offset in offsets
    ]


def stored_as(
    records: list[Record],
    codec: Codec,
    body: bytes | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> memoryview:
    """Return a v2 batch of the records, whose compressed bytes are `body` or those of this package."""
    if body is None:
        return memoryview(v2.build_batch(records, codec=codec, timestamp_type=timestamp_type))
    return memoryview(
        bytes(v2.with_body(memoryview(v2.build_batch(records, timestamp_type=timestamp_type)), body, codec))
    )


def in_one_step(stored: memoryview, to_magic: int, limit_bytes: int = 1 << 26) -> bytes | None:
    """Convert a batch with a `Recompression` of its own."""
    return Recompression().convert(stored, to_magic, limit_bytes)


def in_pieces(stored: memoryview, to_magic: int, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Convert a batch with the libraries alone."""
    with monkeypatch.context() as patched:
        patched.setattr("gregor.protocol.records.convert._convert_in_one_step", lambda *_: None)
        return bytes(convert_with_codec(complete_batch_at(stored, 0), to_magic).data)


def codec_is_worse(stored: memoryview) -> bool:
    """Return whether a batch has a size that is converted in pieces."""
    batch = complete_batch_at(stored, 0)
    size = len(decompress(batch.codec, stored[v2.RECORDS_AT :]))
    return size < 1024 or (batch.codec is Codec.SNAPPY and size > 64 * 1024)


def check(stored: memoryview, to_magic: int, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Check a conversion in one step against that of the libraries; return the wrapper."""
    wrapper, expected = in_one_step(stored, to_magic), in_pieces(stored, to_magic, monkeypatch)
    if wrapper is None:
        # The libraries convert small batches and large ones of snappy.
        assert codec_is_worse(stored)
        return expected
    codec = complete_batch_at(stored, 0).codec
    value_at = 34 if to_magic else 26
    written, wanted = (memoryview(message)[value_at:] for message in (wrapper, expected))
    assert decompress(codec, written, magic=to_magic) == decompress(codec, wanted, magic=to_magic)
    # All fields of the wrapper but its size and CRC, of which the latter is checked below.
    assert (wrapper[:8], wrapper[16 : value_at - 4]) == (expected[:8], expected[16 : value_at - 4])
    ours, theirs = (complete_batch_at(memoryview(message), 0) for message in (wrapper, expected))
    assert ours.crc_is_valid
    assert list(iter_records(ours)) == list(iter_records(theirs))
    return wrapper


@pytest.mark.parametrize("to_magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", ["null", "words", "noise", "zeros", "repeated"])
@pytest.mark.parametrize(("size", "count"), [(0, 1), (1, 40), (5, 3000), (100, 150), (1000, 200), (70_000, 3)])
def test_a_batch_in_one_step_holds_what_the_libraries_write(
    codec: Codec, to_magic: int, kind: str, size: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(stored_as(records_of(kind, size, count), codec), to_magic, monkeypatch)


def other_writers(codec: Codec, body: bytes) -> dict[str, bytes]:
    """Return the same content as other compressors write it."""
    if codec is Codec.LZ4:
        sizes = {f"blocks {size}": {"block_size": size, "block_linked": False} for size in (4, 5, 6, 7)}
        high = {f"level {level}": {"compression_level": level, "block_linked": False} for level in (-20, 9, 12)}
        return {name: lz4.frame.compress(body, **options) for name, options in (sizes | high).items()}
    if codec is Codec.SNAPPY:
        return {"one block": bytes(snappy.compress(body)), "framed": compress(codec, body)}
    written = {}
    for level in (0, 1, 4, 9):
        for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_FIXED):
            compressor = zlib.compressobj(level, zlib.DEFLATED, 31, 1, strategy)
            written[f"{level} {strategy}"] = compressor.compress(body) + compressor.flush()
    flushed = zlib.compressobj(6, zlib.DEFLATED, 31)
    pieces = [
        flushed.compress(body[at : at + 999]) + flushed.flush(zlib.Z_SYNC_FLUSH) for at in range(0, len(body), 999)
    ]
    return written | {"flushed": b"".join(pieces) + flushed.flush()}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", ["words", "repeated"])
def test_batches_of_other_compressors(codec: Codec, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    records = records_of(kind, 100, 1500)
    for body in other_writers(codec, v2.build_batch(records)[v2.RECORDS_AT :]).values():
        check(stored_as(records, codec, body), 1, monkeypatch)


def snappy_elements(body: bytes, source: random.Random) -> bytes:
    """Compress to one block with elements of all kinds: literals and matches of any length, distance and width."""
    out, size = bytearray(), len(body)
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    at = 0
    while at < len(body):
        wanted = body[at : at + source.choice([1, 2, 4, 4, 8, 12, 64])]
        found = source.choice([body.rfind, body.find])(wanted, max(0, at - 40_000), at - 1 + len(wanted))
        if 0 <= found < at and source.randrange(10):
            length, distance = len(wanted), at - found
            kinds = [2] * (distance < 1 << 16) + [3] + [1, 1] * (4 <= length < 12 and distance < 2048)
            kind = source.choice(kinds)
            if kind == 1:
                out += bytes([1 | (length - 4) << 2 | distance >> 8 << 5, distance & 0xFF])
            else:
                out += bytes([kind | (length - 1) << 2]) + distance.to_bytes(2 if kind == 2 else 4, "little")
        else:
            length = min(source.choice([1, 3, 7, 20, 33, 60, 61, 300]), len(body) - at)
            width = source.choice([0, 1, 2, 3, 4] if length <= 60 else [1, 2, 3, 4] if length <= 256 else [2, 3, 4])
            if width == 0:
                out.append(length - 1 << 2)
            else:
                out += bytes([59 + width << 2]) + (length - 1).to_bytes(width, "little")
            out += body[at : at + length]
        at += length
    return bytes(out)


@pytest.mark.parametrize("kind", ["words", "repeated", "zeros", "noise"])
@pytest.mark.parametrize(("size", "count"), [(10, 200), (100, 300), (1000, 20), (9000, 5)])
def test_snappy_elements_of_all_kinds(kind: str, size: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = random.Random(size)
    records = records_of(kind, size, count)
    block = snappy_elements(v2.build_batch(records)[v2.RECORDS_AT :], source)
    assert bytes(snappy.uncompress(block)) == v2.build_batch(records)[v2.RECORDS_AT :]
    check(stored_as(records, Codec.SNAPPY, block), 1, monkeypatch)


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_is_that_of_all_messages(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = stored_as(records_of("words", 100, 20), codec, timestamp_type=TimestampType.LOG_APPEND_TIME)
    wrapper = check(stored, 1, monkeypatch)
    assert {record.timestamp for record in iter_records(complete_batch_at(memoryview(wrapper), 0))} == {
        complete_batch_at(stored, 0).max_timestamp
    }


@pytest.mark.parametrize("codec", CODECS)
def test_compression_is_hardly_worse_than_a_new_search(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-283 promises the stored size, so a larger batch would leave messages for the next answer."""
    for size, count in ((100, 150), (1000, 16), (1000, 50)):
        stored = stored_as(records_of("words", size, count), codec)
        for to_magic in (0, 1):
            written = in_one_step(stored, to_magic)
            assert written is not None
            assert len(written) < 1.1 * len(in_pieces(stored, to_magic, monkeypatch))


@pytest.mark.parametrize("codec", CODECS)
def test_broken_data_is_left_to_the_libraries(codec: Codec) -> None:
    """No change of one byte and no cut may give a message set of another size, or read outside of the buffers."""
    source = random.Random(283)
    records = records_of("words", 40, 60)
    body = bytes(stored_as(records, codec)[v2.RECORDS_AT :])
    for _ in range(1500):
        broken = bytearray(body)
        broken[source.randrange(len(body))] = source.randrange(256)
        del broken[source.choice([len(body), source.randrange(1, len(body))]) :]
        in_one_step(stored_as(records, codec, bytes(broken)), source.randrange(2))


@pytest.mark.parametrize("codec", CODECS)
def test_batches_that_it_does_not_convert(codec: Codec) -> None:
    records = records_of("words", 100, 100)
    body = v2.build_batch(records)[v2.RECORDS_AT :]
    assert in_one_step(stored_as(records, codec), 1) is not None
    assert in_one_step(stored_as(records, codec), 1, limit_bytes=len(body) - 1) is None
    assert in_one_step(stored_as(records_of("zeros", MOST_RAW_BYTES, 3), codec), 1) is None
    # More and fewer records than the header says, an impossible timestamp, an impossible offset.
    assert in_one_step(stored_as(records[1:], codec, compress(codec, body)), 1) is None
    assert in_one_step(stored_as(records, codec, compress(codec, body[:-100])), 1) is None
    assert in_one_step(stored_as([*records, Record(200, -5, None, b"")], codec), 1) is None


def test_a_gzip_batch_of_several_deflate_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer ends a block after 65,536 literals and matches, also inside of a match."""
    source = random.Random(1951)
    for zeros in (0, 300, 5000):
        values = [bytes(source.choices(b"abcdefgh", k=1000)) + bytes(zeros) for _ in range(500_000 // (1000 + zeros))]
        records = [Record(offset, TIMESTAMP, None, value) for offset, value in enumerate(values)]
        check(stored_as(records, Codec.GZIP), 1, monkeypatch)
        unmatched = zlib.compressobj(6, zlib.DEFLATED, 31, 9, zlib.Z_HUFFMAN_ONLY)
        body = unmatched.compress(v2.build_batch(records)[v2.RECORDS_AT :]) + unmatched.flush()
        check(stored_as(records, Codec.GZIP, body), 1, monkeypatch)


def test_a_checksum_of_gzip_is_checked() -> None:
    records = records_of("words", 100, 20)
    body = bytearray(stored_as(records, Codec.GZIP)[v2.RECORDS_AT :])
    body[-8] ^= 1
    assert in_one_step(stored_as(records, Codec.GZIP, bytes(body)), 1) is None


def test_snappy_is_framed_for_old_clients_whatever_the_framing_of_the_stored_batch() -> None:
    records = records_of("words", 100, 20)
    body = bytes(snappy.compress(v2.build_batch(records)[v2.RECORDS_AT :]))
    wrapper = in_one_step(stored_as(records, Codec.SNAPPY, body), 1)
    assert wrapper is not None
    assert wrapper[34:].startswith(XERIAL_MAGIC)


def test_a_large_batch_does_not_keep_its_memory_and_leaves_the_next_one_right(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Recompression()
    for size, count in ((1000, 300), (50, 40), (1000, 300), (100, 20)):
        stored = stored_as(records_of("words", size, count), Codec.LZ4)
        wrapper = step.convert(stored, 1, 1 << 26)
        assert wrapper is not None
        assert len(list(iter_records(complete_batch_at(memoryview(wrapper), 0)))) == count


def test_the_module_knows_which_build_it_is(record_build: str) -> None:
    assert (record_build == "compiled") == recompression_cy.COMPILED
