"""The client's side of a connection without I/O: requests to bytes, bytes to answers, hostile bytes."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.protocol.apis import AnyApiKey, ApiKey, request_header_version
from gregor.protocol.codec import decode, decode_prefix, encode
from gregor.protocol.conversation import Conversation, InFlightRequest
from gregor.protocol.errors import BrokerError, DecodeError, ErrorCode
from gregor.protocol.framing import FrameReader
from gregor.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from gregor.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from gregor.protocol.messages.header import RequestHeader
from gregor.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from gregor.protocol.messages.list_groups import ListGroupsRequest
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.spoken_versions import Negotiation, SpokenVersions

FLEXIBLE_VERSION = 4
"""The first version of Heartbeat whose response header has tagged fields."""


def sent(conversation: Conversation) -> list[memoryview]:
    """Return the frames that a driver would write."""
    reader = FrameReader(1 << 20)
    reader.feed(b"".join(conversation.take_outgoing()))
    return list(iter(reader.next_frame, None))


def header_of(frame: memoryview, key: AnyApiKey, version: int) -> tuple[RequestHeader, int]:
    return decode_prefix(RequestHeader, frame, request_header_version(key, version))


def answer(request: InFlightRequest, code: int, tags: bytes = b"\0") -> bytes:
    """Return the bytes of an answer to a Heartbeat, of which a flexible header has these tagged fields."""
    body = encode(HeartbeatResponse(error_code=code), request.version)
    header = request.correlation_id.to_bytes(4, "big") + tags * (request.version >= FLEXIBLE_VERSION)
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


def feed_in_pieces(conversation: Conversation, data: bytes, piece_bytes: int) -> None:
    for at in range(0, len(data), piece_bytes):
        conversation.feed(data[at : at + piece_bytes])
        answered(conversation)


def answered(conversation: Conversation) -> list[InFlightRequest]:
    return list(iter(conversation.next_answered, None))


@given(st.lists(st.tuples(st.sampled_from([0, 3, 4]), st.integers(0, 99))), st.lists(st.integers(1, 30)))
def test_answers_come_in_the_order_of_the_requests_however_the_stream_is_cut(
    requests: list[tuple[int, int]], cuts: list[int]
) -> None:
    conversation = Conversation("hypothesis")
    in_flight = [conversation.submit(HeartbeatRequest(group_id="g"), version) for version, _ in requests]
    stream = b"".join(answer(request, code) for request, (_, code) in zip(in_flight, requests, strict=True))
    done: list[InFlightRequest] = []
    for cut in [*cuts, len(stream)]:
        piece, stream = stream[:cut], stream[cut:]
        conversation.feed(piece)
        done += answered(conversation)
    assert done == in_flight
    assert [request.decode(HeartbeatResponse).error_code for request in done] == [code for _, code in requests]
    assert conversation.in_flight_count == 0


@pytest.mark.parametrize("client_id", ["a client", "", None, "ü" * 300])
@pytest.mark.parametrize("version", [0, FLEXIBLE_VERSION])
def test_a_request_is_framed_with_its_header(client_id: str | None, version: int) -> None:
    conversation = Conversation(client_id, first_correlation_id=2**31 - 1)
    requests = [conversation.submit(HeartbeatRequest(group_id=group), version) for group in ("first", "second")]
    frames = sent(conversation)
    for request, frame, group, correlation_id in zip(
        requests, frames, ("first", "second"), (2**31 - 1, 0), strict=True
    ):
        header, position = header_of(frame, ApiKey.HEARTBEAT, version)
        assert (header.request_api_key, header.request_api_version) == (ApiKey.HEARTBEAT, version)
        assert (header.correlation_id, header.client_id) == (correlation_id, client_id)
        assert decode(HeartbeatRequest, frame[position:], version).group_id == group
        assert request.size_bytes == 4 + len(frame)
    assert conversation.take_outgoing() == []


def test_controlled_shutdown_v0_is_sent_without_a_client_id() -> None:
    conversation = Conversation("a client")
    conversation.submit(ControlledShutdownRequest(broker_id=7), 0)
    (frame,) = sent(conversation)
    assert decode(ControlledShutdownRequest, frame[8:], 0).broker_id == 7


def test_a_request_is_sent_in_the_newest_common_version() -> None:
    conversation = Conversation("c")
    with pytest.raises(BrokerError, match="UNSUPPORTED_VERSION"):
        conversation.submit(ListGroupsRequest())
    conversation.versions = SpokenVersions({ApiKey.LIST_GROUPS: (0, 2)})
    assert conversation.submit(ListGroupsRequest()).version == 2
    assert len(sent(conversation)) == 1, "a request that cannot be encoded leaves no bytes"


def test_a_produce_request_with_acks_0_expects_no_response() -> None:
    conversation = Conversation("c")
    conversation.submit(ProduceRequest(acks=0), 3, has_answer=False)
    second = conversation.submit(HeartbeatRequest(), 0)
    assert len(sent(conversation)) == 2
    conversation.feed(answer(second, 0))
    assert conversation.next_answered() is second


@pytest.mark.parametrize("version", [0, 3, 8])
def test_submit_each_sends_one_request_per_batch_without_copying_records(version: int) -> None:
    def produce(records: bytes) -> ProduceRequest:
        return ProduceRequest(
            acks=1,
            topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=2, records=records)])],
        )

    alone, together = Conversation("c"), Conversation("c")
    batches = [b"", b"one", bytes(70_000)]
    for batch in batches:
        alone.submit(produce(batch), version)
    views = [memoryview(batch) for batch in batches]
    together.submit_each(produce(b""), version, views)
    pieces = together.take_outgoing()
    assert b"".join(pieces) == b"".join(alone.take_outgoing())
    assert all(any(piece is view for piece in pieces) for view in views), "records are not copied"
    assert together.in_flight_count == 3


def test_tagged_fields_of_the_response_header_are_skipped() -> None:
    conversation = Conversation("c")
    request = conversation.submit(HeartbeatRequest(), FLEXIBLE_VERSION)
    conversation.feed(answer(request, 27, tags=b"\x02\x00\x03abc\x81\x01\x00"))
    assert answered(conversation) == [request]
    assert request.decode(HeartbeatResponse).error_code == 27


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\x00\x00\x08\x00\x00\x00\x09\x00\x00\x00\x00", "answer 9 instead of 0"),
        (b"\x00\x00\x00\x03\x00\x00\x00", "an answer of 3 bytes"),
        (b"\x00\x00\x00\x00", "an answer of 0 bytes"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x00", "cut short"),
        (b"\x00\x00\x00\x05\x00\x00\x00\x00\x01", "cut short"),
        (b"\x00\x00\x00\x07\x00\x00\x00\x00\x01\x00\x7f", "length 127 is not possible"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (b"\x00\x00\x10\x01", "a frame of 4097 bytes"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "that port uses TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n", "a Kafka broker does not answer with b'HTTP"),
        (b"SSH-", "a Kafka broker does not answer with b'SSH-"),
    ],
)
@pytest.mark.parametrize("piece_bytes", [1, 4, 100])
def test_malformed_responses_raise_decode_error(data: bytes, reason: str, piece_bytes: int) -> None:
    conversation = Conversation("c", limit_bytes=4096)
    conversation.submit(HeartbeatRequest(), FLEXIBLE_VERSION)
    with pytest.raises(DecodeError, match=reason):
        feed_in_pieces(conversation, data, piece_bytes)


def test_an_answer_without_a_request_is_malformed() -> None:
    conversation = Conversation("c")
    request = conversation.submit(HeartbeatRequest(), 0)
    conversation.feed(answer(request, 0) * 2)
    assert conversation.next_answered() is request
    with pytest.raises(DecodeError, match="an answer without a request"):
        conversation.next_answered()


def test_an_announced_answer_costs_nothing_before_it_arrives() -> None:
    conversation = Conversation("c")
    conversation.submit(HeartbeatRequest(), 0)
    tracemalloc.start()
    try:
        conversation.feed((2**31 - 1).to_bytes(4, "big"))
        assert conversation.next_answered() is None
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("broker_has", [3, 0])
def test_versions_are_negotiated_again_in_version_0(broker_has: int) -> None:
    served = [ApiVersion(api_key=ApiKey.HEARTBEAT, min_version=1, max_version=2)]
    negotiation, asked = Negotiation(), []
    versions = None
    while versions is None:
        asked.append(negotiation.version)
        is_refused = negotiation.version > broker_has
        code = ErrorCode.UNSUPPORTED_VERSION if is_refused else ErrorCode.NONE
        body = encode(ApiVersionsResponse(error_code=code, api_keys=served), 0 if is_refused else negotiation.version)
        versions = negotiation.take(memoryview(body))
    assert asked == ([3] if broker_has else [3, 0])
    assert versions.version(ApiKey.HEARTBEAT) == 2
    assert ApiKey.FETCH not in versions


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", DecodeError),
        (b"\x00", DecodeError),
        (b"\x00\x00\x7f", DecodeError),
        (encode(ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), 3), BrokerError),
    ],
)
def test_a_refused_or_malformed_api_versions_response_raises_an_error(body: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        Negotiation().take(memoryview(body))


def test_a_broker_that_refuses_each_version_ends_the_negotiation() -> None:
    negotiation = Negotiation()
    refusal = memoryview(encode(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), 0))
    assert negotiation.take(refusal) is None
    with pytest.raises(BrokerError, match="ApiVersions"):
        negotiation.take(refusal)
