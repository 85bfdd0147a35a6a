"""Sessions of idle followers, whose partitions are not looked at again until one of them changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from gregor.broker.metadata.state import PartitionState
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from tests.broker.api.log_requests import values_of
from tests.broker.api.test_follower_fetch_api import EPOCH, FOLLOWER, Following, following, paused_clock

__all__ = ["following", "paused_clock"]

WAIT_MS = 500


def idle_request(following: Following) -> FetchRequest:
    return following.request(listed=0, max_wait_ms=WAIT_MS)


async def wait_out(following: Following, clock: MockClock, request: FetchRequest) -> FetchResponse:
    """Send a Fetch and return its answer at the deadline."""
    late = following.delay(request)
    clock.jump(WAIT_MS / 1000 + 0.1)
    await wait_all_tasks_blocked()
    return following.take(late)


async def become_idle(following: Following, clock: MockClock) -> None:
    """Bring the session to the state in which its partitions are at rest."""
    await wait_out(following, clock, following.request(max_wait_ms=WAIT_MS))
    for _ in range(3):
        assert (await wait_out(following, clock, idle_request(following))).responses == []


def answers_of(response: FetchResponse) -> dict[int, PartitionData]:
    return {answer.partition_index: answer for topic in response.responses for answer in topic.partitions}


def count_looks(following: Following, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each look-up of a partition adds the partition's number."""
    partitions, looks = following.asking.broker.services.partitions, []
    find = partitions.find

    def counted(topic: str, index: int) -> object:
        looks.append(index)
        return find(topic, index)

    monkeypatch.setattr(type(partitions), "find", lambda _, topic, index: counted(topic, index))
    return looks


async def test_the_partitions_of_an_idle_follower_are_not_looked_at(
    following: Following, paused_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await become_idle(following, paused_clock)
    looks = count_looks(following, monkeypatch)
    for _ in range(5):
        assert (await wait_out(following, paused_clock, idle_request(following))).responses == []
    assert looks == []
    late = following.delay(idle_request(following))
    await following.append(b"a", 1)
    await wait_all_tasks_blocked()
    assert await values_of(answers_of(following.take(late))[1]) == [(0, b"a")]
    assert looks


@pytest.mark.parametrize("is_delayed", [False, True])
@pytest.mark.parametrize("index", [0, 1])
async def test_an_idle_follower_gets_appended_records(
    following: Following, paused_clock: MockClock, index: int, is_delayed: bool
) -> None:
    await become_idle(following, paused_clock)
    late = following.delay(idle_request(following)) if is_delayed else None
    for value in (b"a", b"b"):
        await following.append(value, index)
    await wait_all_tasks_blocked()
    answers = answers_of(following.take(late or following.send(idle_request(following))))
    assert {number: await values_of(answer) for number, answer in answers.items()} == {index: [(0, b"a"), (1, b"b")]}


async def test_records_that_are_too_few_at_first_complete_the_fetch_of_an_idle_follower_later(
    following: Following, paused_clock: MockClock
) -> None:
    await become_idle(following, paused_clock)
    request = idle_request(following)
    request.min_bytes = 100
    late = following.delay(request)
    await following.append(b"a", 0)
    await wait_all_tasks_blocked()
    assert not late.is_complete
    await following.append(b"b" * 100, 1)
    await wait_all_tasks_blocked()
    assert set(answers_of(following.take(late))) == {0, 1}


def retire(following: Following) -> None:
    following.partitions[1].retire()


def delete_topic(following: Following) -> None:
    following.asking.broker.services.metadata.delete_topic("t")


def lead_in_a_new_epoch(following: Following) -> None:
    here = following.asking.broker.services.config.node_id
    leadership = following.partitions[1].leadership
    assert leadership is not None
    state = PartitionState(1, here, EPOCH + 1, [here, FOLLOWER], [here, FOLLOWER], 2)
    following.partitions[1].become_leader(state, leadership.rules)


@pytest.mark.parametrize("is_delayed", [False, True])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (retire, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (delete_topic, ErrorCode.UNKNOWN_TOPIC_ID),
        (lead_in_a_new_epoch, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
async def test_an_idle_follower_is_told_of_a_changed_partition(
    following: Following,
    paused_clock: MockClock,
    change: Callable[[Following], None],
    code: ErrorCode,
    is_delayed: bool,
) -> None:
    await become_idle(following, paused_clock)
    late = following.delay(idle_request(following)) if is_delayed else None
    change(following)
    await wait_all_tasks_blocked()
    assert answers_of(following.take(late or following.send(idle_request(following))))[1].error_code == code


async def test_an_idle_follower_is_told_of_a_moved_log_start(following: Following, paused_clock: MockClock) -> None:
    await following.append(b"a", 0)
    following.take(following.send(following.request()))
    following.partitions[0].log.advance_high_watermark(1)
    await wait_out(following, paused_clock, following.request(1, listed=1, max_wait_ms=WAIT_MS))
    for _ in range(3):
        assert (await wait_out(following, paused_clock, idle_request(following))).responses == []
    late = following.delay(idle_request(following))
    following.partitions[0].log.advance_log_start(1)
    paused_clock.jump(WAIT_MS / 1000 + 0.1)
    await wait_all_tasks_blocked()
    assert answers_of(following.take(late))[0].log_start_offset == 1


async def test_an_idle_follower_that_left_the_in_sync_set_asks_to_join_again(
    following: Following, paused_clock: MockClock
) -> None:
    await become_idle(following, paused_clock)
    leadership, here = following.partitions[1].leadership, following.asking.broker.services.config.node_id
    assert leadership is not None
    leadership.update(PartitionState(1, here, EPOCH, [here, FOLLOWER], [here], 2))
    assert leadership.wish is None
    following.delay(idle_request(following))
    assert leadership.wish is not None
    assert set(leadership.wish.node_ids) == {here, FOLLOWER}


async def test_a_restarted_follower_in_the_same_session_is_noted(following: Following, paused_clock: MockClock) -> None:
    await become_idle(following, paused_clock)
    request = idle_request(following)
    request.replica_state.replica_epoch = 2
    following.delay(request)
    leadership = following.partitions[0].leadership
    assert leadership is not None
    assert leadership.followers[FOLLOWER].broker_epoch == 2


async def test_the_times_of_an_idle_followers_fetches_count_when_records_come(
    following: Following, paused_clock: MockClock
) -> None:
    await become_idle(following, paused_clock)
    leadership = following.partitions[0].leadership
    assert leadership is not None
    follower = leadership.followers[FOLLOWER]
    follower.caught_up_ms = 0
    before_ms = leadership.rules.now_ms()
    await wait_out(following, paused_clock, idle_request(following))
    assert follower.caught_up_ms == 0, "the time is given to each partition only when it matters"
    await following.append(b"a", 0)
    assert follower.caught_up_ms >= before_ms
    leadership.drop_laggards()
    assert leadership.wish is None


async def test_nothing_is_watched_for_an_idle_follower_that_has_disconnected(
    following: Following, paused_clock: MockClock
) -> None:
    await become_idle(following, paused_clock)
    late = following.delay(idle_request(following))
    sessions = following.asking.broker.services.fetch_sessions
    late.cancel()
    assert len(following.asking.broker.services.purgatory) == 0
    assert not any(partition.is_watched for partition in following.partitions)
    assert len(sessions) == 1
    await following.append(b"a", 0)
    following.session_epoch += 1
    assert set(answers_of(following.take(following.send(idle_request(following))))) == {0}


async def test_two_fetches_of_an_idle_session_at_a_time_both_see_new_records(
    following: Following, paused_clock: MockClock
) -> None:
    await become_idle(following, paused_clock)
    first = following.delay(idle_request(following))
    following.session_epoch += 1
    second = following.delay(idle_request(following))
    await following.append(b"a", 0)
    await wait_all_tasks_blocked()
    assert first.is_complete
    assert second.is_complete
