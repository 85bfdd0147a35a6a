"""Messages to bytes and back: every class, every version, and the rules of single wire types."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from random import Random
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.protocol.codec import decode, decode_prefix, encode, encode_parts, encode_struct
from gregor.protocol.errors import BrokerError, DecodeError, EncodeError, ErrorCode
from gregor.protocol.messages.api_versions import ApiVersionsRequest
from gregor.protocol.messages.cluster_metadata_records import PartitionChangeRecord
from gregor.protocol.messages.consumer_group_heartbeat import Assignment, ConsumerGroupHeartbeatResponse
from gregor.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from gregor.protocol.messages.header import RequestHeader
from gregor.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from gregor.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.schema import EncodedStruct, Message, Struct
from tests.protocol.random_messages import message_classes, random_message, versions_of


def full_name(cls: type[Message]) -> str:
    return cls.__name__


@dataclass
class UnreadRecords:
    """A part of records that are not in memory."""

    size: int


@pytest.mark.parametrize("cls", message_classes(), ids=full_name)
def test_every_version_survives_a_round_trip(cls: type[Message]) -> None:
    random = Random(cls.__name__)
    for version in versions_of(cls):
        for _ in range(3):
            message = random_message(cls, version, random)
            data = encode(message, version)
            assert decode_prefix(cls, data, version) == (message, len(data))


@given(st.randoms(use_true_random=False))
def test_any_message_survives_a_round_trip(random: Random) -> None:
    cls = random.choice(message_classes())
    version = random.choice(versions_of(cls))
    message = random_message(cls, version, random)
    data = encode(message, version)
    assert decode_prefix(cls, data, version) == (message, len(data))
    assert encode(decode(cls, data, version), version) == data


def with_encoded_entries(message: Message, version: int, random: Random) -> Message:
    """Return a copy of a message in which some structures of its lists are encoded."""
    values = {name: getattr(message, name) for name in message.FIELD_DEFAULTS}
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = [
                EncodedStruct(encode_struct(entry, type(message), version), 0)
                if isinstance(entry, Struct) and random.random() < 0.7
                else entry
                for entry in value
            ]
    return type(message)(**values)


@pytest.mark.parametrize("cls", message_classes(), ids=full_name)
def test_encoded_entries_have_the_bytes_of_declared_ones(cls: type[Message]) -> None:
    random = Random(cls.__name__)
    for version in versions_of(cls):
        for _ in range(3):
            message = random_message(cls, version, random)
            mixed = with_encoded_entries(message, version, random)
            assert encode(mixed, version) == encode(message, version)
            assert b"".join(cast(list[bytes], encode_parts(mixed, version))) == encode(message, version)


def test_an_entry_with_a_value_out_of_range_is_not_encoded() -> None:
    with pytest.raises(EncodeError, match="PartitionProduceData v7"):
        encode_struct(PartitionProduceData(index=1 << 40), ProduceRequest, 7)


def test_a_message_as_the_protocol_guide_writes_it() -> None:
    message = HeartbeatRequest(group_id="g", generation_id=7, member_id="m-1")
    assert encode(message, 0) == b"\0\1g" + b"\0\0\0\7" + b"\0\3m-1"
    assert encode(message, 4) == b"\2g" + b"\0\0\0\7" + b"\4m-1" + b"\0" + b"\0"


def test_bytes_after_the_message_are_ignored() -> None:
    assert decode(HeartbeatResponse, b"\0\x1b" + b"left over", 0) == HeartbeatResponse(error_code=27)


def test_one_message_after_another_is_read_from_its_position() -> None:
    header = RequestHeader(request_api_key=12, request_api_version=0, correlation_id=5, client_id="c")
    body = HeartbeatRequest(group_id="g")
    frame = memoryview(encode(header, 1) + encode(body, 0))
    read, position = decode_prefix(RequestHeader, frame, 1)
    assert read == header
    assert decode_prefix(HeartbeatRequest, frame, 0, position) == (body, len(frame))


@pytest.mark.parametrize("length", [-1, -2, -32768])
def test_any_negative_length_is_null_where_null_is_allowed(length: int) -> None:
    data = bytes(8) + length.to_bytes(2, "big", signed=True)
    assert decode(RequestHeader, data, 1).client_id is None


def test_a_negative_count_is_null_only_in_versions_that_allow_null() -> None:
    count = (-5).to_bytes(4, "big", signed=True)
    assert decode(MetadataRequest, count, 1).topics is None
    with pytest.raises(DecodeError, match="topics"):
        decode(MetadataRequest, count, 0)


@pytest.mark.parametrize(("data", "version"), [(b"\xff\xff" + bytes(6), 0), (b"\0" + bytes(8), 4)])
def test_null_is_refused_where_it_is_not_allowed(data: bytes, version: int) -> None:
    with pytest.raises(DecodeError, match="group_id"):
        decode(HeartbeatRequest, data, version)


def test_text_that_is_not_utf_8_is_read_with_replacement_characters() -> None:
    assert decode(RequestHeader, bytes(8) + b"\0\3a\xff\xfe", 1).client_id == "a\ufffd\ufffd"


def test_compact_string_lengths_may_take_several_varint_bytes() -> None:
    request = ApiVersionsRequest(client_software_name="n" * 126, client_software_version="v" * 20_000)
    data = encode(request, 3)
    assert data.startswith(b"\x7f" + b"n" * 126 + b"\xa1\x9c\x01" + b"v")
    assert decode(ApiVersionsRequest, data, 3) == request


def test_a_nullable_structure_begins_with_a_byte_for_its_presence() -> None:
    absent = ConsumerGroupHeartbeatResponse()
    present = ConsumerGroupHeartbeatResponse(assignment=Assignment())
    assert encode(absent, 0).endswith(b"\xff\0")
    assert encode(present, 0).endswith(b"\1\1\0\0")
    assert decode(ConsumerGroupHeartbeatResponse, encode(present, 0), 0) == present


def test_tagged_fields_come_by_rising_tag_and_only_when_not_default() -> None:
    assert encode(PartitionChangeRecord(), 2)[-1:] == b"\0"
    record = PartitionChangeRecord(directories=[], eligible_leader_replicas=[], leader=3)
    assert encode(record, 2).endswith(b"\3" + b"\1\4\0\0\0\3" + b"\6\1\1" + b"\x08\1\1")


def test_unknown_tagged_fields_are_skipped_at_every_level() -> None:
    partition = FetchPartition(partition=1, fetch_offset=2)
    plain = encode(FetchRequest(topics=[FetchTopic(topic="t", partitions=[partition])], rack_id="r"), 12)
    unknown = b"\1" + b"\xff\x7f" + b"\3" + b"abc"
    sections = plain[-6:]
    assert sections == b"\0\0\1\2r\0", "of the partition, of the topic, of the request"
    with_unknown = plain[:-6] + unknown + unknown + b"\1\2r" + unknown
    assert decode(FetchRequest, with_unknown, 12) == decode(FetchRequest, plain, 12)


def test_a_value_that_the_version_cannot_carry_is_an_error_unless_it_may_be_ignored() -> None:
    with pytest.raises(BrokerError, match="group_instance_id") as refused:
        encode(HeartbeatRequest(group_instance_id="static"), 2)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert encode(HeartbeatResponse(throttle_time_ms=9), 0) == b"\0\0"


def test_a_structure_that_the_version_cannot_carry_is_compared_with_its_default() -> None:
    request = FetchRequest()
    assert encode(request, 11)
    request.replica_state.replica_epoch = 4
    with pytest.raises(BrokerError, match="replica_state"):
        encode(request, 11)


def test_a_version_that_does_not_exist_is_refused() -> None:
    for version in (-1, 5):
        with pytest.raises(BrokerError) as refused:
            encode(HeartbeatRequest(), version)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_encoding_null_in_a_version_without_null_raises_type_error() -> None:
    with pytest.raises(TypeError):
        encode(MetadataRequest(topics=None), 0)


def test_records_are_views_into_what_was_received() -> None:
    records = b"the records"
    request = ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=records)])])
    frame = bytearray(encode(request, 7))
    view = decode(ProduceRequest, frame, 7).topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    frame[-1:] = b"S"
    assert bytes(view) == b"the recordS"


@pytest.mark.parametrize("version", [4, 12])
def test_records_outside_memory_are_separate_parts_of_the_encoded_response(version: int) -> None:
    def response(*records: Any) -> FetchResponse:
        partitions = [PartitionData(partition_index=index, records=each) for index, each in enumerate(records)]
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])

    unread = UnreadRecords(300), UnreadRecords(0)
    parts = encode_parts(response(unread[0], b"in memory", unread[1], None), version)
    assert [part for part in parts if isinstance(part, UnreadRecords)] == list(unread)
    sent = b"".join(part if isinstance(part, bytes) else bytes(part.size) for part in parts)
    assert sent == encode(response(bytes(300), b"in memory", b"", None), version)
    assert len(parts) == 5, "neighbouring bytes are joined"


def test_a_topic_id_is_read_as_a_uuid_and_by_default_zero() -> None:
    topic_id = UUID("5b2f4e43-9a3f-4b3a-8f5e-1c2d3e4f5a6b")
    request = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=topic_id, name=None), MetadataRequestTopic(name="t")]
    )
    assert decode(MetadataRequest, encode(request, 12), 12) == request


def test_tracebacks_show_the_generated_code() -> None:
    try:
        decode(HeartbeatRequest, b"\0", 0)
    except DecodeError as error:
        shown = "".join(traceback.format_exception(error))
    assert "<codec HeartbeatRequest v0 decode>" in shown
    assert "unpack_from_h(data, pos)" in shown
