"""The fetches of followers that need no task: what is taken, what wakes them, and that the long way says the same."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gregor.broker.api.dispatch import Dispatcher
from gregor.broker.metadata.state import PartitionState
from gregor.broker.replicas.partition import Partition
from gregor.broker.replicas.replication.leadership import ReplicationRules
from gregor.broker.server.late_answer import LateAnswer
from gregor.broker.server.parts import BUFFERS, Sink, total_size
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from tests.asking import Asking
from tests.broker.api.log_requests import Collecting, batch, frame_of, produce, produced, response_of, values_of

VERSION = 17
FOLLOWER = 7
EPOCH = 3


@dataclass
class Following:
    """A follower of two partitions of this broker's; it is in sync."""

    asking: Asking
    partitions: list[Partition]
    session_id: int = 0
    session_epoch: int = 0
    answers: list[FetchResponse] = field(default_factory=list)

    @property
    def dispatcher(self) -> Dispatcher:
        return self.asking.broker.dispatcher

    def request(
        self, offset: int = 0, *, listed: int = 2, epoch: int = EPOCH, max_wait_ms: int = 30_000
    ) -> FetchRequest:
        topic_id = self.partitions[0].log.topic_id
        assert topic_id is not None
        partitions = [
            FetchPartition(
                partition=index,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                last_fetched_epoch=EPOCH if offset else -1,
                log_start_offset=0,
                partition_max_bytes=1 << 20,
            )
            for index in range(listed)
        ]
        return FetchRequest(
            replica_state=ReplicaState(replica_id=FOLLOWER, replica_epoch=1),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[FetchTopic(topic_id=topic_id, partitions=partitions)] if listed else [],
        )

    def send(self, request: FetchRequest, version: int = VERSION) -> bytes | LateAnswer | None:
        frame = frame_of(ApiKey.FETCH, version, request, client_id="broker-7-fetcher-0")
        self.asking.client.client_id_bytes = b"broker-7-fetcher-0"
        return self.dispatcher.answer_now(frame, self.asking.client)

    def park(self, request: FetchRequest) -> LateAnswer:
        late = self.send(request)
        assert isinstance(late, LateAnswer)
        assert late.frame is None
        return late

    def take(self, frame: bytes | None) -> FetchResponse:
        """What the answer says, and with it the session."""
        assert frame is not None
        (size_bytes,) = struct.unpack_from(">i", frame)
        assert size_bytes == len(frame) - 4
        response: FetchResponse = response_of(ApiKey.FETCH, VERSION, frame[4:])
        self.session_id, self.session_epoch = response.session_id, self.session_epoch + 1
        return response

    async def append(self, value: bytes, partition: int = 0) -> None:
        await produced(self.asking, produce(batch(value), partition=partition, acks=1), 9)


@pytest.fixture
def paused_clock(autojump_clock: MockClock) -> MockClock:
    """Time that only passes when the test says so."""
    autojump_clock.autojump_threshold = float("inf")
    return autojump_clock


@pytest.fixture
async def following(asking: Asking, paused_clock: MockClock) -> Following:
    asking.broker.services.metadata.create_topic("t", partitions=2)
    partitions = [*asking.broker.services.partitions.of_topic("t").values()]
    here = asking.broker.services.config.node_id
    for index, partition in enumerate(partitions):
        state = PartitionState(index, here, EPOCH, [here, FOLLOWER], [here, FOLLOWER], 1)
        rules = ReplicationRules(here, 30_000, asking.broker.services.clock.now_ms, lambda *_: True, lambda *_: None)
        partition.become_leader(state, rules)
    return Following(asking, partitions)


async def test_it_is_answered_with_all_that_one_turn_appends(following: Following) -> None:
    late = following.park(following.request())
    for value, partition in ((b"a", 0), (b"b", 0), (b"c", 1)):
        await following.append(value, partition)
        assert late.frame is None
    await wait_all_tasks_blocked()
    (topic,) = following.take(late.frame).responses
    assert {answer.partition_index: await values_of(answer) for answer in topic.partitions} == {
        0: [(0, b"a"), (1, b"b")],
        1: [(0, b"c")],
    }
    assert len(following.asking.broker.services.purgatory) == 0


async def test_the_next_one_tells_that_it_was_copied(following: Following) -> None:
    late = following.park(following.request(listed=1))
    await following.append(b"a")
    await wait_all_tasks_blocked()
    assert following.take(late.frame).responses[0].partitions[0].high_watermark == 0
    acknowledged: list[ErrorCode] = []
    following.partitions[0].when_replicated(0, acknowledged.append)
    late = following.park(following.request(1, listed=1))
    assert acknowledged == [ErrorCode.NONE]
    await following.append(b"b")
    await wait_all_tasks_blocked()
    assert following.take(late.frame).responses[0].partitions[0].high_watermark == 1


async def test_its_time_is_over(following: Following, paused_clock: MockClock) -> None:
    late = following.park(following.request(max_wait_ms=500))
    paused_clock.jump(0.4)
    await wait_all_tasks_blocked()
    assert late.frame is None
    paused_clock.jump(0.2)
    await wait_all_tasks_blocked()
    following.take(late.frame)
    late = following.park(following.request(listed=0, max_wait_ms=500))
    paused_clock.jump(0.6)
    await wait_all_tasks_blocked()
    assert following.take(late.frame).responses == [], "there is no news"


async def test_a_later_one_has_less_time(following: Following, paused_clock: MockClock) -> None:
    patient = following.park(following.request(max_wait_ms=30_000))
    hasty = following.park(following.request(max_wait_ms=500))
    paused_clock.jump(1)
    await wait_all_tasks_blocked()
    assert hasty.frame is not None
    assert patient.frame is None
    paused_clock.jump(30)
    await wait_all_tasks_blocked()
    assert patient.frame is not None


async def test_the_broker_stops(following: Following) -> None:
    late = following.park(following.request())
    following.asking.broker.services.purgatory.stop()
    assert late.frame is not None
    assert isinstance(following.send(following.request()), bytes), "nobody waits any more"


async def test_the_topic_is_deleted(following: Following) -> None:
    late = following.park(following.request())
    following.asking.broker.services.metadata.delete_topic("t")
    await wait_all_tasks_blocked()
    (topic,) = following.take(late.frame).responses
    assert {answer.error_code for answer in topic.partitions} == {ErrorCode.UNKNOWN_TOPIC_ID}


async def test_a_session_that_is_not_known(following: Following) -> None:
    following.session_id, following.session_epoch = 99, 5
    frame = following.send(following.request())
    assert isinstance(frame, bytes)
    assert following.take(frame).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_who_is_behind_goes_the_long_way(following: Following) -> None:
    await following.append(b"a")
    assert following.send(following.request()) is None


@pytest.mark.parametrize("version", [4, 11, 14, 16, 17])
async def test_consumers_go_the_long_way(following: Following, version: int) -> None:
    request = following.request()
    request.replica_state = ReplicaState()
    assert following.send(request, version) is None


async def test_followers_that_know_less_or_ask_for_others_go_the_long_way(following: Following) -> None:
    assert following.send(following.request(epoch=EPOCH - 1)) is None
    assert following.send(following.request(listed=3)) is None
    following.partitions[1].retire()
    assert following.send(following.request()) is None


async def test_the_long_way_says_the_same(following: Following, nursery: trio.Nursery) -> None:
    asked = following.request()
    late = following.park(asked)
    frame = frame_of(ApiKey.FETCH, VERSION, asked, client_id="broker-7-fetcher-0")

    async def ask() -> None:
        answer = await following.dispatcher.answer(frame, following.asking.client)
        assert answer is not None
        outlet = Collecting()
        sink = Sink(outlet, total_size(answer))
        for part in answer:
            await (sink.write(part) if isinstance(part, BUFFERS) else part.send_to(sink))
        following.answers.append(response_of(ApiKey.FETCH, VERSION, outlet.data))

    nursery.start_soon(ask)
    await wait_all_tasks_blocked()
    await following.append(b"a")
    await wait_all_tasks_blocked()
    (expected,) = following.answers
    told = following.take(late.frame)
    told.session_id = expected.session_id
    assert told == expected
