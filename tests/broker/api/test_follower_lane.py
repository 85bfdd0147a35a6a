"""Fetch requests of a busy follower: through its lane, and as all requests are answered."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from gregor.broker.metadata.state import PartitionState
from gregor.broker.replicas.fetching import follower_lane_cy, lane_opening
from gregor.broker.replicas.partition import Partition
from gregor.broker.replicas.replication.leadership import ReplicationRules
from gregor.broker.server.outcome import Outcome
from gregor.broker.server.parts import Answer
from gregor.broker.server.pending import Pending
from gregor.protocol.apis import ApiKey
from gregor.protocol.codec import encode
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from gregor.protocol.records.batches import iter_batches
from tests.asking import Asking
from tests.broker.api.log_requests import batch, frame_of, produce, produced
from tests.broker.api.test_follower_fetch_api import EPOCH, FOLLOWER, VERSION, Following, paused_clock

__all__ = ["paused_clock"]

WAIT_MS = 500
SESSION_EPOCH_AT = 17
OTHER = 8
TOPICS = ("s", "t")
MAX_BYTES = 1 << 20


@dataclass
class BusyFollower(Following):
    """A follower that appends what it gets and names the partitions whose end has moved."""

    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    named: list[tuple[str, int]] = field(default_factory=list)
    max_bytes: int = MAX_BYTES
    partition_max_bytes: int = MAX_BYTES
    copies: dict[tuple[str, int], bytes] = field(default_factory=dict)
    high_watermarks: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_place = {(each.topic, each.index): each for each in self.partitions}
        self.ends = dict.fromkeys(self.by_place, 0)
        self.copies = dict.fromkeys(self.by_place, b"")
        self.named = list(self.by_place)

    @property
    def lane(self) -> follower_lane_cy.FollowerLane | None:
        lane = self.asking.client.lane
        assert lane is None or type(lane).__name__ == "FollowerLane"
        return lane  # type: ignore[return-value]

    def next_request(self) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        for place in self.named:
            topic_id = self.by_place[place].log.topic_id
            assert topic_id is not None
            topic = topics.setdefault(place[0], FetchTopic(topic_id=topic_id, partitions=[]))
            wanted = FetchPartition(
                partition=place[1],
                current_leader_epoch=EPOCH,
                fetch_offset=self.ends[place],
                last_fetched_epoch=EPOCH if self.ends[place] else -1,
                log_start_offset=0,
                partition_max_bytes=self.partition_max_bytes,
            )
            topic.partitions.append(wanted)
        return FetchRequest(
            replica_state=ReplicaState(replica_id=FOLLOWER, replica_epoch=1),
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=self.max_bytes,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=list(topics.values()),
            gregor_with_tag_runs=True,
        )

    def fetch(self) -> Outcome[Answer | None]:
        answer = self.send(self.next_request())
        self.named = []
        return answer

    def copy(self, answer: Outcome[Answer | None]) -> dict[tuple[str, int], PartitionData]:
        """Append the records in an answer; return its partitions."""
        names = {each.log.topic_id: each.topic for each in self.partitions}
        found = {}
        for topic in self.take(answer).responses:
            for data in topic.partitions:
                place = names[topic.topic_id], data.partition_index
                assert place not in found
                found[place] = data
                self.high_watermarks[place] = data.high_watermark
                for each in iter_batches(bytes_of(data)):
                    assert each.base_offset == self.ends[place]
                    self.ends[place] = each.last_offset + 1
                if data.records:
                    self.named.append(place)
                    self.copies[place] += bytes_of(data)
        return found

    async def write(self, value: bytes, place: tuple[str, int]) -> None:
        request = produce(batch(value), place[0], partition=place[1], acks=1)
        await produced(self.asking, request, 9)

    async def become_busy(self) -> None:
        """Bring the session to the state in which its requests take the lane."""
        for place in (("t", 0), ("t", 0)):
            answer = self.fetch()
            if isinstance(answer, Pending):
                await self.write(b"first", place)
                await wait_all_tasks_blocked()
            self.copy(answer)
        assert self.lane is not None

    def progress(self) -> list[object]:
        return [
            (leadership.followers[FOLLOWER].log_end_offset, each.log.high_watermark)
            for each in self.partitions
            if (leadership := each.leadership) is not None
        ]


def bytes_of(data: PartitionData) -> bytes:
    assert data.records is None or isinstance(data.records, bytes | memoryview)
    return bytes(data.records or b"")


def is_waiting(answer: Outcome[Answer | None]) -> bool:
    return isinstance(answer, Pending) and not answer.is_complete


@pytest.fixture(params=["compiled", "pure python"])
def build(request: pytest.FixtureRequest, pure_modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "pure python":
        monkeypatch.setattr(lane_opening, "FollowerLane", pure_modules["follower_lane_cy"].FollowerLane)
    return str(request.param)


def following(asking: Asking) -> BusyFollower:
    services = asking.broker.services
    partitions: list[Partition] = []
    here = services.config.node_id
    for topic in TOPICS:
        services.metadata.create_topic(topic, partitions=2)
        partitions += services.partitions.of_topic(topic).values()
    for partition in partitions:
        state = PartitionState(partition.index, here, EPOCH, [here, FOLLOWER], [here, FOLLOWER], 1)
        partition.become_leader(
            state, ReplicationRules(here, 30_000, services.clock.now_ms, lambda *_: True, lambda *_: None)
        )
    return BusyFollower(asking, partitions)


@pytest.fixture
async def follower(asking: Asking, paused_clock: MockClock, build: str) -> BusyFollower:
    busy = following(asking)
    await busy.become_busy()
    return busy


async def test_a_busy_follower_copies_all_records_through_its_lane(
    follower: BusyFollower, paused_clock: MockClock
) -> None:
    dice = random.Random(5)
    answers_of_lane = 0
    for number in range(400):
        answer = follower.fetch()
        if is_waiting(answer) and dice.random() < 0.05:
            paused_clock.jump(WAIT_MS / 1000 + 0.01)
        elif is_waiting(answer) or dice.random() < 0.5:
            for _ in range(dice.choice((1, 1, 1, 2, 5))):
                value = b"%d" % number * dice.choice((1, 1, 1, 3000))
                await follower.write(value, dice.choice(list(follower.by_place)))
        if dice.random() < 0.1:
            paused_clock.jump(0.05)
        await wait_all_tasks_blocked()
        assert not is_waiting(answer)
        answers_of_lane += follower.lane is not None
        follower.copy(answer)
    for _ in range(2):
        answer = follower.fetch()
        paused_clock.jump(WAIT_MS / 1000 + 0.01)
        await wait_all_tasks_blocked()
        follower.copy(answer)
    assert answers_of_lane > 300
    for place, partition in follower.by_place.items():
        with partition.log.read(0, 1 << 30) as found:
            assert follower.copies[place] == found.read()
        assert follower.ends[place] == partition.log.log_end_offset == partition.log.high_watermark
        assert follower.high_watermarks[place] == partition.log.high_watermark


async def test_the_answers_are_those_that_a_broker_without_lanes_gives(
    asking: Asking, paused_clock: MockClock, build: str
) -> None:
    busy = following(asking)
    told: list[list[object]] = []
    for has_lane in (True, False):
        for _ in range(3):
            answer = busy.fetch()
            paused_clock.jump(WAIT_MS / 1000 + 0.01)
            await wait_all_tasks_blocked()
            busy.copy(answer)
        await busy.become_busy()
        answers: list[object] = []
        for number in range(12):
            if not has_lane:
                asking.client.lane = None
            places = [(TOPICS[number // 2 % 2], number % 2), ("t", 1)]
            answer = busy.fetch()
            for place in places[: 1 + number % 2]:
                await busy.write(b"v", place)
            await wait_all_tasks_blocked()
            before = {each: busy.ends[each] for each in busy.by_place}
            found = busy.copy(answer)
            if number % 3 == 1:
                await busy.write(b"w", ("s", 0))
            answers.append(
                {
                    place: (
                        data.error_code,
                        data.high_watermark - before[place],
                        data.last_stable_offset - before[place],
                        data.log_start_offset,
                        data.aborted_transactions,
                        data.preferred_read_replica,
                        len(bytes_of(data)),
                        len(data.gregor_tag_runs or b""),
                    )
                    for place, data in found.items()
                }
            )
        told.append(answers)
    assert told[0] == told[1]


async def test_the_positions_that_a_request_names_acknowledge_records(follower: BusyFollower) -> None:
    late = follower.fetch()
    await follower.write(b"a", ("s", 1))
    acknowledged = follower.by_place["s", 1].replicated(0)
    await wait_all_tasks_blocked()
    assert follower.copy(late)["s", 1].high_watermark == 0
    assert not acknowledged.is_complete
    late = follower.fetch()
    assert acknowledged.result() is ErrorCode.NONE
    await follower.write(b"b", ("t", 1))
    await wait_all_tasks_blocked()
    answers = follower.copy(late)
    assert answers["s", 1].high_watermark == 1
    assert not answers["s", 1].records


async def test_a_follower_that_is_behind_is_answered_at_once(follower: BusyFollower) -> None:
    late = follower.fetch()
    await follower.write(b"a", ("s", 1))
    await wait_all_tasks_blocked()
    follower.copy(late)
    await follower.write(b"b", ("s", 1))
    answer = follower.fetch()
    assert isinstance(answer, list)
    assert list(follower.copy(answer)) == [("s", 1)]


async def test_records_of_several_partitions_take_turns_in_small_answers(follower: BusyFollower) -> None:
    follower.max_bytes = 300
    follower.session_id = follower.session_epoch = 0
    follower.named = list(follower.by_place)
    await follower.become_busy()
    for _ in range(3):
        for place in follower.by_place:
            await follower.write(b"x" * 200, place)
    turns = []
    for _ in range(12):
        answer = follower.fetch()
        assert not is_waiting(answer)
        turns += [place for place, data in follower.copy(answer).items() if data.records]
    assert follower.lane is not None
    assert len(turns) == 12
    assert all(set(turns[at : at + 4]) == set(follower.by_place) for at in (0, 4, 8))


async def test_a_batch_above_the_limits_is_sent_whole(follower: BusyFollower) -> None:
    follower.partition_max_bytes = 100
    follower.session_id = follower.session_epoch = 0
    follower.named = list(follower.by_place)
    await follower.become_busy()
    late = follower.fetch()
    await follower.write(b"x" * 50_000, ("s", 0))
    await wait_all_tasks_blocked()
    assert len(bytes_of(follower.copy(late)["s", 0])) > 50_000


async def test_a_log_that_cannot_be_read_is_reported_by_the_next_fetch(
    follower: BusyFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = follower.fetch()
    await follower.write(b"a", ("s", 0))
    await follower.write(b"b", ("t", 1))
    with monkeypatch.context() as broken:

        def fail(*_: object, **__: object) -> None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)

        broken.setattr(type(follower.by_place["t", 1].log), "read", fail)
        await wait_all_tasks_blocked()
        assert follower.copy(late) == {}
        assert follower.copy(follower.fetch())["t", 1].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    answers = follower.copy(follower.fetch())
    assert all(answers[place].records for place in (("s", 0), ("t", 1)))


def retire(follower: BusyFollower) -> None:
    follower.by_place["t", 1].retire()


def delete_topic(follower: BusyFollower) -> None:
    follower.asking.broker.services.metadata.delete_topic("t")


def lead_in_a_new_epoch(follower: BusyFollower) -> None:
    here = follower.asking.broker.services.config.node_id
    leadership = follower.by_place["t", 1].leadership
    assert leadership is not None
    state = PartitionState(1, here, EPOCH + 1, [here, FOLLOWER], [here, FOLLOWER], 2)
    follower.by_place["t", 1].become_leader(state, leadership.rules)


@pytest.mark.parametrize("is_delayed", [False, True])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (retire, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (delete_topic, ErrorCode.UNKNOWN_TOPIC_ID),
        (lead_in_a_new_epoch, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
async def test_a_busy_follower_is_told_of_a_changed_partition(
    follower: BusyFollower, change: Callable[[BusyFollower], None], code: ErrorCode, is_delayed: bool
) -> None:
    late = follower.fetch() if is_delayed else None
    change(follower)
    await wait_all_tasks_blocked()
    if late is not None:
        assert follower.copy(late) == {}
    assert follower.copy(follower.fetch())["t", 1].error_code == code
    assert follower.lane is None


async def test_a_busy_follower_is_told_of_a_moved_log_start(follower: BusyFollower, paused_clock: MockClock) -> None:
    follower.by_place["t", 0].log.advance_log_start(1)
    paused_clock.jump(follower_lane_cy.LOOK_S)
    answer = follower.fetch()
    await follower.write(b"a", ("s", 0))
    await wait_all_tasks_blocked()
    assert follower.copy(answer)["t", 0].log_start_offset == 1


async def test_a_deadline_brings_an_empty_answer_or_high_watermarks(
    follower: BusyFollower, paused_clock: MockClock
) -> None:
    late = follower.fetch()
    await follower.write(b"a", ("s", 0))
    await wait_all_tasks_blocked()
    follower.copy(late)
    late = follower.fetch()
    paused_clock.jump(WAIT_MS / 1000 + 0.01)
    await wait_all_tasks_blocked()
    assert follower.copy(late)["s", 0].high_watermark == 1
    late = follower.fetch()
    paused_clock.jump(WAIT_MS / 1000 + 0.01)
    await wait_all_tasks_blocked()
    assert follower.copy(late) == {}


async def test_nothing_is_watched_for_a_follower_that_has_disconnected(follower: BusyFollower) -> None:
    late = follower.fetch()
    assert isinstance(late, Pending)
    late.cancel()
    assert follower.lane is None
    assert not any(partition.is_watched for partition in follower.partitions)
    assert len(follower.asking.broker.services.purgatory) == 0


async def test_nothing_is_watched_for_a_follower_that_has_not_fetched_for_a_minute(
    follower: BusyFollower, paused_clock: MockClock
) -> None:
    paused_clock.jump(follower_lane_cy.LONGEST_SILENCE_MS / 1000 + 1)
    await follower.write(b"a", ("s", 0))
    assert follower.lane is None
    assert not any(partition.is_watched for partition in follower.partitions)


async def test_a_waiting_fetch_is_answered_when_the_broker_stops(follower: BusyFollower) -> None:
    late = follower.fetch()
    follower.asking.broker.services.purgatory.stop()
    assert not is_waiting(late)
    assert not is_waiting(follower.fetch())


def with_next_epoch(request: FetchRequest) -> FetchRequest:
    request.session_epoch += 1
    return request


def with_unknown_topic(request: FetchRequest) -> FetchRequest:
    request.topics[0].topic_id = request.topics[0].topic_id.__class__(int=1)
    return request


def with_forgotten_partition(request: FetchRequest) -> FetchRequest:
    request.forgotten_topics_data = [ForgottenTopic(topic_id=request.topics[0].topic_id, partitions=[1])]
    return request


def with_old_leader_epoch(request: FetchRequest) -> FetchRequest:
    request.topics[0].partitions[0].current_leader_epoch -= 1
    return request


def with_another_record_epoch(request: FetchRequest) -> FetchRequest:
    request.topics[0].partitions[0].last_fetched_epoch -= 1
    return request


def beyond_the_end(request: FetchRequest) -> FetchRequest:
    request.topics[0].partitions[0].fetch_offset += 100
    return request


def with_another_limit(request: FetchRequest) -> FetchRequest:
    request.max_bytes -= 1
    return request


def of_a_restarted_broker(request: FetchRequest) -> FetchRequest:
    request.replica_state.replica_epoch += 1
    return request


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (with_next_epoch, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (with_unknown_topic, ErrorCode.UNKNOWN_TOPIC_ID),
        (with_forgotten_partition, None),
        (with_old_leader_epoch, ErrorCode.FENCED_LEADER_EPOCH),
        (with_another_record_epoch, None),
        (beyond_the_end, None),
        (with_another_limit, None),
        (of_a_restarted_broker, None),
    ],
)
async def test_requests_that_are_not_usual_are_answered_as_all_others(
    follower: BusyFollower, change: Callable[[FetchRequest], FetchRequest], code: ErrorCode | None
) -> None:
    late = follower.fetch()
    await follower.write(b"a", ("s", 0))
    await wait_all_tasks_blocked()
    follower.copy(late)
    request = change(follower.next_request())
    lane = follower.lane
    assert lane is not None
    frame = frame_of(ApiKey.FETCH, VERSION, request, client_id="broker-7-fetcher-0")
    before = follower.progress()
    assert lane.answer(memoryview(frame)) is None
    assert follower.progress() == before
    answer = follower.send(request)
    if code is not None:
        response: FetchResponse = follower.take(answer)
        codes = {data.error_code for topic in response.responses for data in topic.partitions}
        assert response.error_code == code or code in codes


async def test_no_prefix_and_no_changed_byte_of_a_request_reads_beyond_it(follower: BusyFollower) -> None:
    follower.named = list(follower.by_place)
    frame = bytes(frame_of(ApiKey.FETCH, VERSION, follower.next_request(), client_id="broker-7-fetcher-0"))
    lane = follower.lane
    assert lane is not None
    for length in range(len(frame)):
        assert lane.answer(memoryview(frame[:length])) is None
    topics_at = len(frame) - len(encode(follower.next_request(), VERSION)) + SESSION_EPOCH_AT
    for place in range(topics_at, len(frame)):
        for byte in {0, 1, 2, 0x7F, 0x80, 0xFF} - {frame[place]}:
            # The first position that is possible too, such as another log start offset, ends the test.
            if lane.answer(memoryview(frame[:place] + bytes([byte]) + frame[place + 1 :])) is not None:
                return
