"""The two walks over a batch's records give the same result for bytes in pieces of any size."""

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gregor.protocol.records import v1, v2, validation
from gregor.protocol.records.message_walk import MessageWalk
from gregor.protocol.records.record import Record
from gregor.protocol.records.varint import encode_varint, read_varint
from gregor.protocol.records.walk_cy import RecordWalk
from tests.protocol.records.record_strategies import v1_records, v2_records

EARLIEST, LATEST = 1000, 2**44


def record_walk(count: int, base_timestamp: int) -> RecordWalk:
    """Return a walk of the build under test, which stands where the validation looks for it."""
    build: type[RecordWalk] = vars(validation)["RecordWalk"]
    return build(count, base_timestamp, EARLIEST, LATEST, True)


def feed_in_pieces(feed: Callable[[memoryview], int], data: bytes, cuts: list[int]) -> bytes:
    """Feed `data` cut at `cuts` as `feed` requests it; return the remaining bytes."""
    rest = b""
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in pairwise(edges):
        piece = rest + data[start:end]
        rest = piece[feed(memoryview(piece)) :]
    return rest


def body_of(records: list[Record], base_timestamp: int) -> bytes:
    body = bytearray()
    for record in records:
        v2.append_record(body, record, base_offset=0, base_timestamp=base_timestamp)
    return bytes(body)


def facts(records: list[Record]) -> dict[str, object]:
    """Return the facts that a walk should find about `records`, from the definition of each fact."""
    stamps = [record.timestamp for record in records]
    largest = max(stamps)
    return {
        "max_timestamp": largest,
        "index_of_max": stamps.index(largest) if largest >= 0 else 0,
        "null_keys": sum(record.key is None for record in records),
        "bad_keys": [index for index, record in enumerate(records) if record.key is None],
        "bad_timestamps": [
            (index, stamp) for index, stamp in enumerate(stamps) if stamp != -1 and not EARLIEST <= stamp <= LATEST
        ],
        "is_sequential": True,
    }


@given(v2_records, st.integers(-1, 2**40), st.lists(st.integers(0, 10_000), max_size=6))
def test_a_record_walk_over_pieces_finds_the_facts_of_v2_records(
    records: list[Record], base_timestamp: int, cuts: list[int]
) -> None:
    walk = record_walk(len(records), base_timestamp)
    assert feed_in_pieces(walk.feed, body_of(records, base_timestamp), cuts) == b""
    assert walk.is_finished()
    expected = facts(records)
    assert {name: getattr(walk, name) for name in expected} == expected


@given(v1_records, st.lists(st.integers(0, 10_000), max_size=6))
def test_a_message_walk_over_pieces_finds_the_facts_of_v1_messages(records: list[Record], cuts: list[int]) -> None:
    walk = MessageWalk(v1.MAGIC, EARLIEST, LATEST, keys_required=True)
    assert feed_in_pieces(walk.feed, v1.build_message_set(records), cuts) == b""
    expected = facts(records) | {"count": len(records), "last_offset": len(records) - 1}
    assert {name: getattr(walk, name) for name in expected} == expected


@given(v2_records, st.integers(0, 2**31 - 1))
def test_a_record_that_lies_about_its_length_is_refused(records: list[Record], claimed: int) -> None:
    whole = body_of(records[:1], 0)
    length, body_at = read_varint(whole, 0)
    assume(claimed != length)
    lie = bytearray()
    lie += encode_varint(claimed)
    walk = record_walk(1, 0)
    try:
        walk.feed(memoryview(lie + whole[body_at:]))
    except ValueError:
        return
    assert not walk.is_finished()


@given(st.binary(max_size=60), st.integers(1, 5))
def test_random_bytes_are_accepted_or_refused_by_a_record_walk(noise: bytes, count: int) -> None:
    walk = record_walk(count, 0)
    with suppress(ValueError):
        assert 0 <= walk.feed(memoryview(noise)) <= len(noise)


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (b"\xff\xff\xff\xff\xff\x01", "too long"),
        (b"\x0c\x00" + b"\xff" * 10 + b"\x01", "too long"),
        (b"\x01", "negative"),
        (b"\x0c\x00\x00\x00\x01\x01\x01", "number of headers"),
        (b"\x0c\x00\x00\x00\x01\x01\x04", "number of headers"),
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", "no key"),
        (b"\x0c\x00\x00\x00\x40\x01\x00", "longer than the record"),
        (b"\x0e\x00\x00\x00\x01\x01\x00\x00", "longer than its fields"),
        (b"\x18\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", "out of range"),
    ],
)
def test_each_malformed_record_is_refused_with_its_reason(record: bytes, fault: str) -> None:
    walk = record_walk(1, -5)
    with pytest.raises(ValueError, match=fault):
        walk.feed(memoryview(record))
