"""The compiled kernels against their own source as plain Python, and against the libraries that they replace."""

import zlib
from types import ModuleType

import crc32c
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gregor.protocol.records import batches, crc_cy, kernel_cy, up_kernel_cy, v1, v2, walk_cy
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Header, Record

QUICK = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

RECORDS = [
    Record(10, 1_700_000_000_000, b"key", b"value" * 10),
    Record(12, 1_700_000_000_005, None, b"", (Header(b"h", b"x" * 70), Header(b"", None))),
    Record(300, 1_699_999_999_999, b"", None),
]
V2_BATCH = v2.build_batch(RECORDS, base_offset=10)
V1_MESSAGES = v1.build_message_set(RECORDS)
STORED = V2_BATCH + V1_MESSAGES + v2.build_batch(RECORDS, base_offset=10, codec=Codec.LZ4) + V2_BATCH


@pytest.mark.parametrize("size_bytes", [0, 1, 7, 8, 15, 16, 63, 64, 65, 79, 80, 127, 128, 1000, 4097, 131073])
@pytest.mark.parametrize("start", [0, 1, 3])
def test_crcs_are_those_of_the_libraries(size_bytes: int, start: int) -> None:
    data = bytes(index * 7 % 256 for index in range(start + size_bytes))[start:]
    assert crc_cy.crc32(memoryview(data)) == zlib.crc32(data)
    assert crc_cy.crc32c(memoryview(data)) == crc32c.crc32c(data)


@QUICK
@given(st.binary(max_size=300))
def test_crcs_of_random_bytes_equal_those_of_the_libraries(data: bytes) -> None:
    assert crc_cy.crc32(memoryview(data)) == zlib.crc32(data)
    assert crc_cy.crc32c(memoryview(data)) == crc32c.crc32c(data)


def test_a_module_knows_which_build_it_is(record_build: str) -> None:
    assert kernel_cy.implementation() == record_build
    assert up_kernel_cy.COMPILED == kernel_cy.COMPILED


def run_down(module: ModuleType, stored: memoryview, to_magic: int, first_offset: int, step: int) -> list[object]:
    """Return all visible results of a conversion with a buffer of `step` bytes, batch after batch."""
    conversion = module.DownConversion(to_magic, first_offset)
    seen: list[object] = []
    for _ in range(50):
        out = bytearray(step)
        size = conversion.fill(stored, len(stored), memoryview(out))
        seen.append((bytes(out[:size]), conversion.stop, conversion.position, conversion.converted_count))
        seen.append((conversion.offset, conversion.timestamp, conversion.max_timestamp, conversion.records_left))
        if conversion.stop == kernel_cy.Stop.NEEDS_CODEC:
            conversion.skip_batch(stored)
        elif not (conversion.stop == kernel_cy.Stop.OUT_IS_FULL and size):
            break
    measured = module.DownConversion(to_magic, first_offset)
    seen.append((measured.measure_batch(stored, len(stored)), measured.stop, measured.position))
    seen.append(module.survey(stored, 0, len(stored), 100, to_magic))
    return seen


def run_up(module: ModuleType, stored: memoryview, first_offset: int, step: int) -> list[object]:
    conversion = module.UpConversion(first_offset, 200)
    seen: list[object] = []
    for _ in range(50):
        out = bytearray(step)
        size = conversion.fill(stored, len(stored), memoryview(out))
        seen.append((bytes(out[:size]), conversion.stop, conversion.position, conversion.converted_count))
        if conversion.stop == kernel_cy.Stop.NEEDS_CODEC:
            conversion.skip_batch(stored)
        elif not (conversion.stop == kernel_cy.Stop.OUT_IS_FULL and size):
            break
    measured = module.UpConversion(first_offset, 200)
    seen.append((measured.measure_batch(stored, len(stored)), measured.stop, measured.position))
    return seen


@QUICK
@given(
    st.lists(st.tuples(st.integers(0, len(STORED) - 1), st.integers(0, 255)), max_size=6),
    st.integers(0, len(STORED)),
    st.integers(0, 1),
    st.sampled_from([0, 11, 400]),
    st.sampled_from([0, 90, 150, 5000]),
)
def test_compiled_and_pure_conversions_of_any_bytes_are_equal(
    pure_modules: dict[str, ModuleType],
    changes: list[tuple[int, int]],
    size_bytes: int,
    to_magic: int,
    first_offset: int,
    step: int,
) -> None:
    if not kernel_cy.COMPILED:
        return
    hostile = bytearray(STORED[:size_bytes])
    for position, byte in changes:
        if position < size_bytes:
            hostile[position] = byte
    stored = memoryview(hostile)
    pure_down, pure_up = pure_modules["kernel_cy"], pure_modules["up_kernel_cy"]
    assert run_down(kernel_cy, stored, to_magic, first_offset, step) == run_down(
        pure_down, stored, to_magic, first_offset, step
    )
    assert run_up(up_kernel_cy, stored, first_offset, step) == run_up(pure_up, stored, first_offset, step)


def test_positions_outside_the_buffers_are_refused() -> None:
    stored, out = memoryview(V2_BATCH), memoryview(bytearray(10))
    for position, end, out_position in [(-1, 10, 0), (0, len(V2_BATCH) + 1, 0), (20, 10, 0), (0, 10, 11), (0, 10, -1)]:
        for conversion in (
            kernel_cy.DownConversion(1, 0, position),
            up_kernel_cy.UpConversion(0, 100, position),
        ):
            with pytest.raises(ValueError, match="not in a buffer"):
                conversion.fill(stored, end, out, out_position)
    with pytest.raises(ValueError, match="not in a buffer"):
        kernel_cy.survey(stored, 0, len(stored) + 1, 100, 1)
    with pytest.raises(ValueError, match="no complete batch"):
        kernel_cy.DownConversion(1, 0, len(V2_BATCH)).skip_batch(stored)


def test_records_of_a_decompressed_body_are_checked_before_they_are_read() -> None:
    body = memoryview(V2_BATCH)[v2.RECORDS_AT :]
    conversion = kernel_cy.DownConversion(1, 0)
    with pytest.raises(ValueError, match="records from offset"):
        conversion.open_records(-1, len(body), 0, 0, -1, False, 0)
    conversion.open_records(3, len(body) + 1, 10, 0, -1, False, 0)
    assert not conversion.read_record(body)
    assert conversion.fill(body, len(body), memoryview(bytearray(1000))) == 0
    conversion.open_records(3, len(body), 10, 1_700_000_000_000, -1, False, 0)
    assert conversion.read_record(body)
    assert (conversion.offset, conversion.timestamp) == (10, 1_700_000_000_000)


def test_bits_beyond_the_width_of_a_number_are_dropped_by_every_reader(pure_modules: dict[str, ModuleType]) -> None:
    # The length of the key, 1, in five bytes; Kafka's ByteUtils drops the three highest bits of the fifth.
    record = b"\x00\x00\x00" + b"\x82\x80\x80\x80\x70" + b"k\x01\x00"
    body = memoryview(bytes((len(record) * 2,)) + record)
    for module in (kernel_cy, pure_modules["kernel_cy"]):
        conversion = module.DownConversion(1, 0)
        conversion.open_records(1, len(body), 0, 0, -1, False, 0)
        assert conversion.read_record(body)
        assert bytes(body[conversion.key_at :][: conversion.key_length]) == b"k"
    assert batches.read_v2_record(body, 0, base_offset=0, base_timestamp=0)[0].key == b"k"
    for walking in (walk_cy, pure_modules["walk_cy"]):
        walk = walking.RecordWalk(1, 0, -1, 1)
        assert walk.feed(body) == len(body)
        assert walk.is_finished()
