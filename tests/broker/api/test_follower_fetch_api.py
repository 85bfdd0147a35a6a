"""Delayed fetches of followers: the conditions that delay and complete them, and their answers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from gregor.broker.api.dispatch import Dispatcher
from gregor.broker.metadata.state import PartitionState
from gregor.broker.replicas.fetching.conversion import SMALL_BYTES
from gregor.broker.replicas.partition import Partition
from gregor.broker.replicas.replication.leadership import ReplicationRules
from gregor.broker.server.outcome import Outcome
from gregor.broker.server.parts import BUFFERS, Answer, FileSlice, Sink, total_size
from gregor.broker.server.pending import Pending
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from tests.asking import Asking
from tests.broker.api.log_requests import Collecting, batch, fetch, frame_of, produce, produced, response_of, values_of

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

    def send(self, request: FetchRequest) -> Outcome[Answer | None]:
        frame = frame_of(ApiKey.FETCH, VERSION, request, client_id="broker-7-fetcher-0")
        return self.dispatcher.answer(frame, self.asking.client)

    def delay(self, request: FetchRequest) -> Pending[Answer]:
        pending = self.send(request)
        assert isinstance(pending, Pending)
        assert not pending.is_complete
        return pending

    def take(self, answer: Outcome[Answer | None]) -> FetchResponse:
        """Return the response in an answer that needs no task; it sets the session."""
        if isinstance(answer, Pending):
            answer = answer.result()
        assert isinstance(answer, list)
        outlet = Collecting()
        sink = Sink(outlet, total_size(answer))
        for part in answer:
            if isinstance(part, FileSlice):
                part.send_now(sink)
            else:
                sink.write_now(part)
        sink.finish()
        response: FetchResponse = response_of(ApiKey.FETCH, VERSION, outlet.data)
        self.session_id, self.session_epoch = response.session_id, self.session_epoch + 1
        return response

    async def append(self, value: bytes, partition: int = 0) -> None:
        await produced(self.asking, produce(batch(value), partition=partition, acks=1), 9)


@pytest.fixture
def paused_clock(autojump_clock: MockClock) -> MockClock:
    """Return a clock that only the test advances."""
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


async def test_a_delayed_follower_fetch_returns_all_batches_appended_in_one_turn_of_the_event_loop(
    following: Following,
) -> None:
    late = following.delay(following.request())
    for value, partition in ((b"a", 0), (b"b", 0), (b"c", 1)):
        await following.append(value, partition)
        assert not late.is_complete
    await wait_all_tasks_blocked()
    (topic,) = following.take(late).responses
    assert {answer.partition_index: await values_of(answer) for answer in topic.partitions} == {
        0: [(0, b"a"), (1, b"b")],
        1: [(0, b"c")],
    }
    assert len(following.asking.broker.services.purgatory) == 0


async def test_the_next_follower_fetch_advances_the_high_watermark(following: Following) -> None:
    late = following.delay(following.request(listed=1))
    await following.append(b"a")
    await wait_all_tasks_blocked()
    assert following.take(late).responses[0].partitions[0].high_watermark == 0
    acknowledged = following.partitions[0].replicated(0)
    late = following.delay(following.request(1, listed=1))
    assert acknowledged.result() is ErrorCode.NONE
    await following.append(b"b")
    await wait_all_tasks_blocked()
    assert following.take(late).responses[0].partitions[0].high_watermark == 1


async def test_a_delayed_follower_fetch_is_completed_after_max_wait_ms(
    following: Following, paused_clock: MockClock
) -> None:
    late = following.delay(following.request(max_wait_ms=500))
    paused_clock.jump(0.4)
    await wait_all_tasks_blocked()
    assert not late.is_complete
    paused_clock.jump(0.2)
    await wait_all_tasks_blocked()
    following.take(late)
    late = following.delay(following.request(listed=0, max_wait_ms=500))
    paused_clock.jump(0.6)
    await wait_all_tasks_blocked()
    assert following.take(late).responses == [], "no partition has changed"


async def test_a_delayed_fetch_with_a_shorter_max_wait_ms_is_completed_first(
    following: Following, paused_clock: MockClock
) -> None:
    patient = following.delay(following.request(max_wait_ms=30_000))
    hasty = following.delay(following.request(max_wait_ms=500))
    paused_clock.jump(1)
    await wait_all_tasks_blocked()
    assert hasty.is_complete
    assert not patient.is_complete
    paused_clock.jump(30)
    await wait_all_tasks_blocked()
    assert patient.is_complete


async def test_delayed_follower_fetches_are_completed_when_the_broker_stops(following: Following) -> None:
    late = following.delay(following.request())
    following.asking.broker.services.purgatory.stop()
    assert late.is_complete
    assert not isinstance(following.send(following.request()), Pending), "no delayed fetch remains"


async def test_deletion_of_the_topic_completes_a_delayed_follower_fetch(following: Following) -> None:
    late = following.delay(following.request())
    following.asking.broker.services.metadata.delete_topic("t")
    await wait_all_tasks_blocked()
    (topic,) = following.take(late).responses
    assert {answer.error_code for answer in topic.partitions} == {ErrorCode.UNKNOWN_TOPIC_ID}


async def test_a_follower_fetch_with_an_unknown_session_is_refused(following: Following) -> None:
    following.session_id, following.session_epoch = 99, 5
    assert following.take(following.send(following.request())).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_follower_that_is_behind_is_answered_at_once(following: Following) -> None:
    await following.append(b"a")
    (topic,) = following.take(following.send(following.request())).responses
    assert await values_of(topic.partitions[0]) == [(0, b"a")]


@pytest.mark.parametrize("change", ["old epoch", "no such partition", "not led"])
async def test_a_follower_fetch_with_an_error_is_answered_at_once(following: Following, change: str) -> None:
    request = following.request(epoch=EPOCH - 1 if change == "old epoch" else EPOCH)
    request.topics[0].partitions[0].partition = 7 if change == "no such partition" else 0
    if change == "not led":
        following.partitions[0].retire()
    (topic,) = following.take(following.send(request)).responses
    assert any(answer.error_code for answer in topic.partitions)


async def test_a_delayed_fetch_ends_with_its_client(following: Following) -> None:
    late = following.delay(following.request())
    assert late.ends_with_client
    late.cancel()
    assert len(following.asking.broker.services.purgatory) == 0
    await following.append(b"a")
    await wait_all_tasks_blocked()
    assert not late.is_complete


async def test_a_large_conversion_of_a_delayed_fetch_happens_while_the_answer_is_sent(
    asking: Asking, paused_clock: MockClock
) -> None:
    asking.broker.services.metadata.create_topic("t", partitions=1)
    request = fetch((0, 0), max_wait_ms=30_000)
    pending = asking.broker.dispatcher.answer(frame_of(ApiKey.FETCH, 2, request), asking.client)
    assert isinstance(pending, Pending)
    large = b"a" * (SMALL_BYTES + 1)
    await produced(asking, produce(batch(large), acks=1), 9)
    await wait_all_tasks_blocked()
    answer = pending.result()
    assert isinstance(answer, list)
    assert not all(isinstance(part, BUFFERS) for part in answer), "the conversion is a part that is sent lazily"
    outlet = Collecting()
    sink = Sink(outlet, total_size(answer))
    for part in answer:
        await (sink.write(part) if isinstance(part, BUFFERS) else part.send_to(sink))
    (topic,) = response_of(ApiKey.FETCH, 2, outlet.data).responses
    assert await values_of(topic.partitions[0]) == [(0, large)]
