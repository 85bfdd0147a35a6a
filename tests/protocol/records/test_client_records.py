"""Records as a client writes and reads them, compiled and not: the same bytes as the specification's own code."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.protocol.records import client_records_cy as in_use
from gregor.protocol.records import v2
from gregor.protocol.records.batches import iter_records, read_batch
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Header, Record, TimestampType
from gregor.protocol.records.varint import INT64_LAST_SHIFT, encode_varint
from tests.conftest import pure_twin

PURE = next(pure_twin(source) for source in __import__("pathlib").Path(v2.__file__).parent.glob("client_records_cy.py"))
BUILDS = pytest.mark.parametrize("build", [in_use, PURE], ids=["in use", "pure"])

nullable = st.none() | st.binary(max_size=200)
header_lists = st.lists(st.tuples(st.text(max_size=10), nullable), max_size=3)
rows = st.tuples(st.integers(0, 2**41), nullable, nullable, header_lists)


class Nine(NamedTuple):
    """The nine lists that `decode_records` fills."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: object
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    leader_epoch: int


def encoded(build: ModuleType, *record: Any) -> bytes:
    """Return the bytes of a record."""
    body = bytearray(b"before")
    assert build.append_record(body, *record) == len(body) - 6
    assert body.startswith(b"before")
    return bytes(body[6:])


@BUILDS
@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_are_encoded_and_decoded(build: ModuleType, number: int) -> None:
    expected = bytearray()
    expected += encode_varint(number)
    assert build.encode_varint(number) == bytes(expected)
    assert build.read_number(bytes(expected), 0, len(expected), INT64_LAST_SHIFT) == (number, len(expected))


@BUILDS
@given(st.lists(rows, min_size=1, max_size=20), st.integers(0, 25))
def test_encoded_records_equal_those_of_v2_and_are_decoded(
    build: ModuleType, written: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], skip: int
) -> None:
    base = written[0][0]
    body = b"".join(
        encoded(build, timestamp - base, index, key, value, headers)
        for index, (timestamp, key, value, headers) in enumerate(written)
    )
    records = [
        Record(index, timestamp, key, value, tuple(Header(name.encode(), content) for name, content in headers))
        for index, (timestamp, key, value, headers) in enumerate(written)
    ]
    batch = v2.build_batch(records)
    assert batch[v2.RECORDS_AT :] == body
    view = read_batch(batch)
    assert view is not None
    assert list(iter_records(view)) == records
    decoded = build.decode_records(body, len(written), 100, base, None, 100 + skip, Nine, "t", 3, None, 5)
    assert decoded == [
        Nine("t", 3, 100 + record.offset, record.timestamp, None, record.key, record.value, record.headers, 5)
        for record in records[skip:]
    ]


@BUILDS
def test_log_append_time_replaces_record_timestamps(build: ModuleType) -> None:
    body = encoded(build, 0, 0, None, b"v", ())
    (record,) = build.decode_records(body, 1, 0, 5, 99, 0, Nine, "t", 0, None, -1)
    assert record.timestamp == 99


@BUILDS
@given(st.binary(max_size=60), st.integers(0, 4))
def test_garbage_is_refused_or_read(build: ModuleType, body: bytes, count: int) -> None:
    try:
        records = build.decode_records(body, count, 0, 0, None, 0, Nine, "t", 0, None, -1)
    except build.TruncatedRecordError:
        return
    assert len(records) <= count


@BUILDS
@given(st.data())
def test_a_record_cut_anywhere_is_refused(build: ModuleType, data: st.DataObject) -> None:
    body = encoded(build, 7, 0, b"key", b"value", [("name", b"content")])
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(build.TruncatedRecordError):
        build.decode_records(body[:cut], 1, 0, 0, None, 0, Nine, "t", 0, None, -1)


@BUILDS
@given(
    written=st.lists(rows, min_size=1, max_size=8),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP]),
    is_append_time=st.booleans(),
    is_transactional=st.booleans(),
    damage=st.sampled_from([None, None, v2.CRC_AT, v2.MAGIC_AT, -1]),
    skip=st.integers(0, 9),
    cut=st.sampled_from([0, 0, 1, 30]),
)
def test_a_plain_batch_is_decoded_as_any_batch_and_others_are_left_alone(
    build: ModuleType,
    written: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: Codec,
    is_append_time: bool,
    is_transactional: bool,
    damage: int | None,
    skip: int,
    cut: int,
) -> None:
    records = [
        Record(100 + index, timestamp, key, value, tuple(Header(name.encode(), content) for name, content in headers))
        for index, (timestamp, key, value, headers) in enumerate(written)
    ]
    kind = TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME
    batch = bytearray(
        v2.build_batch(records, base_offset=100, codec=codec, timestamp_type=kind, is_transactional=is_transactional)
    )
    if damage is not None:
        batch[damage] ^= 0x5A
    data = memoryview(b"before" + bytes(batch))
    data = data[: len(data) - cut]
    found = build.decode_plain_batch(data, 6, True, 100 + skip, Nine, "t", 3, "created", "appended")
    is_plain = codec is Codec.NONE and not is_transactional and damage is None and not cut and skip < len(records)
    assert (found is not None) == is_plain
    if found is not None:
        view = read_batch(batch)
        assert view is not None
        when = "appended" if is_append_time else "created"
        expected = [
            Nine("t", 3, record.offset, record.timestamp, when, record.key, record.value, record.headers, -1)
            for record in iter_records(view)
            if record.offset >= 100 + skip
        ]
        assert found == (expected, len(data), 100 + len(records))
