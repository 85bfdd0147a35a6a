"""The second codec for plain Fetch messages equals the declared one, in all versions."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gregor.protocol.codec import decode, encode
from gregor.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from gregor.protocol.plain_fetch_cy import FetchAnswer, ReceivedFetch

VERSIONS = range(12)
int8, int32, int64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (7, 31, 63))
names = st.text(min_size=1, max_size=30) | st.text("ab", min_size=200, max_size=249)
both_builds = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
partitions = st.lists(
    st.builds(
        FetchPartition,
        partition=int32,
        current_leader_epoch=int32,
        fetch_offset=int64,
        log_start_offset=int64,
        partition_max_bytes=int32,
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda wanted: wanted.partition,
)
topics = st.lists(
    st.builds(FetchTopic, topic=names, partitions=partitions), min_size=1, max_size=4, unique_by=lambda each: each.topic
)
requests = st.builds(
    FetchRequest,
    replica_id=int32,
    max_wait_ms=int32,
    min_bytes=int32,
    max_bytes=int32,
    isolation_level=st.integers(0, 127),
    topics=topics,
    rack_id=st.sampled_from(["", "r1"]),
)


@pytest.fixture(autouse=True)
def _both_builds(record_build: str) -> None:
    """Run each test with both builds."""


def values_of(plain: ReceivedFetch, version: int) -> FetchRequest:
    """Return a decoded request as a declared message, but for what the codec does not keep."""
    request = FetchRequest(
        replica_id=plain.replica_id,
        max_wait_ms=plain.max_wait_ms,
        min_bytes=plain.min_bytes,
        max_bytes=plain.max_bytes,
        isolation_level=plain.isolation_level,
        rack_id="r1" if plain.has_rack else "",
    )
    request.topics = [FetchTopic(topic=name.decode()) for name in plain.topics]
    for number in range(plain.count):
        request.topics[plain.topic_number(number)].partitions.append(
            FetchPartition(
                partition=plain.partition(number),
                current_leader_epoch=plain.leader_epoch(number),
                fetch_offset=plain.offset(number),
                partition_max_bytes=plain.most_bytes(number),
            )
        )
    assert [len(topic.partitions) for topic in request.topics] == [
        plain.partition_count(topic) for topic in range(len(plain.topics))
    ]
    return request


@given(requests, st.sampled_from(VERSIONS), st.binary(max_size=3))
@both_builds
def test_requests_are_decoded_as_by_the_declared_codec(request: FetchRequest, version: int, before: bytes) -> None:
    data = encode(request, version)
    plain = ReceivedFetch()
    assert plain.decode(memoryview(before + data), len(before), version)
    expected = decode(FetchRequest, memoryview(data), version)
    for topic in expected.topics:
        for partition in topic.partitions:
            partition.log_start_offset = -1
    assert values_of(plain, version) == expected


def one(**more: object) -> FetchRequest:
    wanted = FetchPartition(partition=1, fetch_offset=2, partition_max_bytes=3)
    return FetchRequest(**{"topics": [FetchTopic(topic="t", partitions=[wanted])], **more})  # type: ignore[arg-type]


def of_partitions(*indexes: int) -> FetchTopic:
    return FetchTopic(topic="t", partitions=[FetchPartition(partition=index) for index in indexes])


OTHERS = {
    "a session": one(session_id=5, session_epoch=1),
    "a new session": one(session_epoch=0),
    "forgotten topics": one(forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[1])]),
    "no topics": one(topics=[]),
    "a topic without partitions": one(topics=[FetchTopic(topic="t")]),
    "a topic twice": one(topics=[of_partitions(0), of_partitions(1)]),
    "a partition twice": one(topics=[of_partitions(0, 1, 0)]),
    "too many partitions": one(topics=[of_partitions(*range(129))]),
    "a name that is too long": one(topics=[FetchTopic(topic="t" * 250, partitions=[FetchPartition()])]),
}


@pytest.mark.parametrize("request_", OTHERS.values(), ids=OTHERS)
def test_other_requests_are_left_to_the_declared_codec(request_: FetchRequest) -> None:
    data = memoryview(encode(request_, 11))
    assert not ReceivedFetch().decode(data, 0, 11)


@pytest.mark.parametrize("version", VERSIONS)
def test_incomplete_and_longer_requests_are_left_to_the_declared_codec(version: int) -> None:
    data = encode(one(), version)
    plain = ReceivedFetch()
    assert plain.decode(memoryview(data), 0, version)
    assert not any(plain.decode(memoryview(data[:end]), 0, version) for end in range(len(data)))
    assert not plain.decode(memoryview(data + b"\0"), 0, version)
    assert not plain.decode(memoryview(encode(one(), 12)), 0, 12)


@given(st.data(), st.sampled_from(VERSIONS), int32, st.booleans())
@both_builds
def test_answers_are_encoded_as_by_the_declared_codec(
    data: st.DataObject, version: int, correlation_id: int, is_committed: bool
) -> None:
    answer = FetchAnswer()
    found = data.draw(topics)
    answer.begin(version, correlation_id, len(found))
    pieces = []
    responses = []
    for topic in found:
        answer.add_topic(topic.topic.encode(), len(topic.partitions))
        answers = []
        for wanted in topic.partitions:
            end, stable, start = data.draw(int64), data.draw(int64), data.draw(int64)
            records = data.draw(st.sampled_from([b"", b"records"]))
            answer.add_partition(wanted.partition, end, stable, start, is_committed, len(records))
            if records:
                pieces += [answer.take(), records]
            answers.append(
                PartitionData(
                    partition_index=wanted.partition,
                    high_watermark=end,
                    last_stable_offset=stable,
                    log_start_offset=start,
                    aborted_transactions=[] if is_committed else None,
                    records=records,
                )
            )
        responses.append(FetchableTopicResponse(topic=topic.topic, partitions=answers))
    expected = correlation_id.to_bytes(4, "big", signed=True) + encode(FetchResponse(responses=responses), version)
    assert b"".join([*pieces, answer.take()]) == expected
