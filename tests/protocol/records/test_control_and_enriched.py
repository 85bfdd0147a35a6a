"""Control records, and the enriched message layout of the 2014 proposal."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records import enriched
from gregor.protocol.records.batches import Record, iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_batch,
    control_type,
    encode_key,
    read_end_transaction_marker,
)
from gregor.protocol.records.enriched import EnrichedMessage, KafkaTags
from tests.protocol.records.record_strategies import documented_failures, v1_records

tags = st.builds(
    KafkaTags,
    st.none() | st.integers(-1, 2**63 - 1),
    st.none() | st.integers(0, 2**31 - 1),
    st.none() | st.booleans(),
    st.none() | st.booleans(),
)
enriched_messages = st.builds(
    EnrichedMessage,
    st.integers(0, 2**63 - 1),
    st.integers(0, 255),
    st.integers(-1, 2**31 - 1),
    st.none() | tags,
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=40),
)
unknown_tags = st.one_of(
    *(
        st.tuples(st.integers(first, last), st.binary(min_size=size, max_size=size))
        for first, last, size in ((1, 31, 8), (33, 63, 4), (64, 95, 2), (98, 127, 1))
    ),
    st.tuples(st.integers(-128, -1), st.binary(max_size=9).map(lambda data: len(data).to_bytes(2, "big") + data)),
)


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_an_end_transaction_marker_is_read_back(kind: ControlType) -> None:
    marker = EndTransactionMarker(kind, 3)
    data = build_end_transaction_batch(marker, producer_id=99, producer_epoch=1, timestamp=5, base_offset=7)
    (batch,) = iter_batches(data)
    (record,) = iter_records(batch)
    assert batch.is_control
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.last_offset) == (99, 1, 7)
    assert read_end_transaction_marker(record) == marker


def test_control_records_of_other_types_are_no_markers() -> None:
    assert control_type(b"\0\0\0\x63") is ControlType.UNKNOWN
    assert read_end_transaction_marker(Record(key=encode_key(ControlType.LEADER_CHANGE))) is None


@pytest.mark.parametrize(
    ("key", "value"), [(None, b""), (b"\0\0\0", b""), (b"\xff\xff\0\0", b""), (b"\0\0\0\1", b"\0"), (b"\0\0\0\1", None)]
)
def test_broken_control_records_are_invalid(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(BrokerError) as failure:
        read_end_transaction_marker(Record(key=key, value=value))
    assert failure.value.code is ErrorCode.INVALID_RECORD


@given(st.lists(enriched_messages, max_size=4))
def test_enriched_messages_are_read_back(messages: list[EnrichedMessage]) -> None:
    data = b"".join(map(enriched.encode_message, messages))
    assert list(enriched.iter_messages(data)) == messages


@given(enriched_messages)
def test_an_enriched_message_cut_anywhere_is_ignored(message: EnrichedMessage) -> None:
    data = enriched.encode_message(message)
    for end in range(len(data)):
        assert list(enriched.iter_messages(data[:end])) == []


def test_the_layout_is_the_proposals() -> None:
    message = EnrichedMessage(7, 0, 60, KafkaTags(timestamp_ms=60_000, message_count=2), None, b"v")
    data = enriched.encode_message(message)
    assert data[:12] == (len(data) - 12).to_bytes(4, "big") + (7).to_bytes(8, "big")
    assert data[16:22] == b"\x01\x00" + (60).to_bytes(4, "big")
    assert data[22:26] == (14).to_bytes(4, "big")
    assert data[26:40] == b"\x00" + (60_000).to_bytes(8, "big") + b"\x20" + (2).to_bytes(4, "big")
    assert data[40:] == b"\xff\xff\xff\xff" + b"\x00\x00\x00\x01v"


@given(tags, st.lists(unknown_tags, max_size=5), st.data())
def test_unknown_tags_are_skipped_wherever_they_stand(
    known: KafkaTags, unknown: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    block = b""
    rest = list(unknown)
    for field, value in zip(KafkaTags._fields, known, strict=True):
        for _ in range(data.draw(st.integers(0, len(rest)))):
            tag_id, body = rest.pop()
            block += tag_id.to_bytes(1, "big", signed=True) + body
        only_this: dict[str, Any] = {field: value}
        block += enriched.encode_tags(KafkaTags(**only_this))
    assert enriched.decode_tags(block) == known


@given(st.binary(max_size=30))
def test_any_tag_block_is_read_or_invalid(block: bytes) -> None:
    with documented_failures():
        enriched.decode_tags(block)


@given(v1_records, st.sampled_from([Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]), st.integers(0, 2**40))
def test_records_of_a_compressed_enriched_message_are_read_back(
    records: list[Record], codec: Codec, start: int
) -> None:
    spread = [record._replace(offset=start + 3 * record.offset) for record in records]
    honoured = enriched.build_compressed_message(spread, codec, received_ms=1_700_000_000_123)
    assert honoured.offset == start
    assert honoured.tags is not None
    assert honoured.tags.message_count == len(records)
    assert honoured.tags.keyed == any(record.key is not None for record in records)
    assert honoured.timestamp_ms == 1_700_000_000_123
    (read_back,) = enriched.iter_messages(enriched.encode_message(honoured))
    assert list(enriched.iter_records(read_back)) == spread


def test_records_without_honoured_relative_offsets_are_numbered_by_index() -> None:
    records = [Record(offset, 5, None, b"x") for offset in (10, 14, 19)]
    mirrored = enriched.build_compressed_message(records, Codec.GZIP, received_ms=1, relative_offsets_honoured=False)
    untagged = EnrichedMessage(10, int(Codec.GZIP), value=mirrored.value)
    for message in (mirrored, untagged):
        assert [record.offset for record in enriched.iter_records(message)] == [10, 11, 12]


def test_a_wrong_crc_or_magic_is_corrupt() -> None:
    data = bytearray(enriched.encode_message(EnrichedMessage(value=b"v")))
    for position in (16, 20, len(data) - 1):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with pytest.raises(BrokerError) as failure:
            list(enriched.iter_messages(damaged))
        assert failure.value.code is ErrorCode.CORRUPT_MESSAGE


def test_unknown_message_types_are_refused() -> None:
    with pytest.raises(BrokerError, match="Message type 7"):
        list(enriched.iter_records(EnrichedMessage(attributes=7)))


def test_control_messages_hold_no_records() -> None:
    for kind in enriched.ControlMessage:
        message = EnrichedMessage(3, int(kind), 5, None, b"key", b"value")
        (read_back,) = enriched.iter_messages(enriched.encode_message(message))
        assert read_back.control is kind
        assert list(enriched.iter_records(read_back)) == []
