"""The second codec for plain Produce messages equals the declared one, in all versions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gregor.protocol.codec import decode, encode
from gregor.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from gregor.protocol.plain_produce_cy import (
    PlainProduce,
    ReceivedProduce,
    decode_plain,
    decode_plain_answer,
    encode_plain,
    plain_pieces,
)

VERSIONS = range(3, 13)
ALL_VERSIONS = range(14)
int16, int32, int64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))
names = st.text(max_size=30) | st.text("ab", min_size=100, max_size=249)
mostly_one = st.sampled_from([1, 1, 1, 0, 2])
mostly_none = st.sampled_from([0, 0, 0, 1])
both_builds = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def _both_builds(record_build: str) -> None:
    """Run each test with both builds."""


def decoded(frame: memoryview, position: int, version: int) -> ProduceRequest | None:
    """Return the request as a declared message if the codec decodes it."""
    plain = ReceivedProduce()
    if not decode_plain(frame, position, version, plain):
        return None
    data = PartitionProduceData(index=plain.partition, records=frame[plain.records_at : plain.records_end])
    name = bytes(frame[plain.name_at : plain.name_end]).decode()
    topic = TopicProduceData(name=name, partition_data=[data])
    return ProduceRequest(acks=plain.acks, timeout_ms=plain.timeout_ms, topic_data=[topic])


@st.composite
def requests(draw: Any) -> ProduceRequest:
    def partition() -> PartitionProduceData:
        records = draw(st.none() | st.binary(max_size=20) | st.sampled_from([bytes(130), bytes(20_000)]))
        return PartitionProduceData(index=draw(int32), records=records)

    return ProduceRequest(
        transactional_id=draw(st.sampled_from([None, None, None, "", "x"])),
        acks=draw(int16),
        timeout_ms=draw(int32),
        topic_data=[
            TopicProduceData(name=draw(names), partition_data=[partition() for _ in range(draw(mostly_one))])
            for _ in range(draw(mostly_one))
        ],
    )


@both_builds
@given(request=requests(), version=st.sampled_from(VERSIONS), skipped=st.binary(max_size=5))
def test_requests_are_decoded_as_declared(request: ProduceRequest, version: int, skipped: bytes) -> None:
    data = memoryview(skipped + encode(request, version))
    plain = decoded(data, len(skipped), version)
    if plain is not None:
        assert plain == decode(ProduceRequest, data[len(skipped) :], version)
    is_plain = request.transactional_id is None and [len(topic.partition_data) for topic in request.topic_data] == [1]
    if is_plain and request.topic_data[0].partition_data[0].records is not None:
        assert (plain is not None) == (version < 9 or len(request.topic_data[0].name.encode()) < 0x7F)


@both_builds
@given(data=st.binary(max_size=60), version=st.sampled_from(ALL_VERSIONS))
def test_malformed_requests_are_left_to_the_declared_codec(data: bytes, version: int) -> None:
    try:
        plain = decoded(memoryview(data), 0, version)
    except UnicodeDecodeError:
        # No topic has such a name.
        return
    if plain is not None:
        assert plain == decode(ProduceRequest, data, version)


@both_builds
@given(request=requests(), version=st.sampled_from(VERSIONS), cut=st.integers(0, 60), more=st.binary(max_size=2))
def test_truncated_or_longer_requests_are_decoded_as_by_the_declared_codec(
    request: ProduceRequest, version: int, cut: int, more: bytes
) -> None:
    data = encode(request, version)
    frame = memoryview(data[: max(len(data) - cut, 0)] + more)
    plain = decoded(frame, 0, version)
    if plain is not None:
        assert plain == decode(ProduceRequest, frame, version)


@both_builds
@given(
    topic=names, partition=int32, offsets=st.tuples(int64, int64, int64), version=st.sampled_from(VERSIONS), acks=int16
)
def test_responses_are_encoded_as_declared(
    topic: str, partition: int, offsets: tuple[int, int, int], version: int, acks: int
) -> None:
    data = PartitionProduceData(index=partition, records=b"")
    request = ProduceRequest(acks=acks, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
    if decoded(memoryview(encode(request, version)), 0, version) is None:
        return
    base_offset, log_append_time_ms, log_start_offset = offsets
    answer = PartitionProduceResponse(
        index=partition,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )
    response = ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[answer])])
    expected = (7).to_bytes(4, "big") + (b"\0" if version >= 9 else b"") + encode(response, version)
    found = encode_plain(topic.encode(), partition, *offsets, version, 7)
    assert found == len(expected).to_bytes(4, "big") + expected


@both_builds
@given(
    topic=names,
    partition=int32,
    acks=int16,
    timeout_ms=int32,
    records=st.binary(max_size=200) | st.sampled_from([bytes(126), bytes(127), bytes(20_000), bytes(3_000_000)]),
    version=st.sampled_from(ALL_VERSIONS),
)
def test_requests_are_encoded_as_declared(
    topic: str, partition: int, acks: int, timeout_ms: int, records: bytes, version: int
) -> None:
    request = PlainProduce(acks, timeout_ms, topic, partition, memoryview(records))
    pieces = plain_pieces(request, version)
    size = len(topic.encode())
    is_plain = 3 <= version <= 12 and size <= (125 if version >= 9 else 249)
    assert (pieces is not None) == is_plain
    if pieces is not None:
        assert pieces[1] is request.records, "records are not copied"
        assert b"".join(pieces) == encode(request.declared(), version)


@st.composite
def answers(draw: Any) -> tuple[ProduceResponse, int]:
    """Return an answer and the version to encode it in."""
    version = draw(st.sampled_from(VERSIONS))
    leader = draw(st.sampled_from([-1, -1, -1, 7]))

    def partition() -> PartitionProduceResponse:
        return PartitionProduceResponse(
            index=draw(st.sampled_from([3, 3, 3, 4])),
            error_code=draw(mostly_none),
            base_offset=draw(int64),
            log_append_time_ms=draw(int64),
            log_start_offset=draw(int64),
            record_errors=[BatchIndexAndErrorMessage()] * draw(mostly_none),
            error_message=draw(st.sampled_from([None, None, None, "", "why"])),
            current_leader=LeaderIdAndEpoch(leader_id=leader) if version >= 10 else LeaderIdAndEpoch(),
        )

    answer = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=draw(st.sampled_from(["topic", "topic", "other", "topi"])),
                partition_responses=[partition() for _ in range(draw(mostly_one))],
            )
            for _ in range(draw(mostly_one))
        ],
        throttle_time_ms=draw(mostly_none),
    )
    return answer, version


@both_builds
@given(answers())
def test_plain_answers_are_decoded_as_declared_and_others_are_left_to_the_declared_codec(
    case: tuple[ProduceResponse, int],
) -> None:
    answer, version = case
    body = encode(answer, version)
    plain = decode_plain_answer(memoryview(body), version, "topic", 3)
    declared = decode(ProduceResponse, body, version)
    expected = plain_answer_of(declared)
    assert (plain is not None) == (expected is not None)
    if plain is not None and expected is not None:
        assert plain.declared() == expected


def plain_answer_of(answer: ProduceResponse) -> ProduceResponse | None:
    """Return an answer if it is plain: for the one partition that was written to, without an error."""
    if [(t.name, [p.index for p in t.partition_responses]) for t in answer.responses] != [("topic", [3])]:
        return None
    part = answer.responses[0].partition_responses[0]
    is_plain = not (part.error_code or part.record_errors or part.error_message is not None or answer.throttle_time_ms)
    return answer if is_plain and part.current_leader == LeaderIdAndEpoch() else None


@both_builds
@given(data=st.binary(max_size=60), case=answers(), cut=st.integers(0, 60))
def test_malformed_answers_are_left_to_the_declared_codec(
    data: bytes, case: tuple[ProduceResponse, int], cut: int
) -> None:
    answer, version = case
    whole = encode(answer, version)
    for body in (data, whole[: max(len(whole) - cut, 0)], whole + data):
        plain = decode_plain_answer(memoryview(body), version, "topic", 3)
        if plain is not None:
            assert plain.declared() == decode(ProduceResponse, body, version)
