"""KIP-526: topics that are requested at once, topics that are added, and topics that are forgotten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.client import Producer
from gregor.client.producer.metadata_policy import MINIMUM_TARGET_SIZE, MetadataPolicy

MAX_AGE_MS = 300_000
EVICT_MS = 300_000
HALF_AGE = 150.0
FULL_AGE = 300.0


def policy_with(count: int, refreshed_at: float = 0.0) -> MetadataPolicy:
    policy = MetadataPolicy(MAX_AGE_MS, 10**9)
    topics = [f"t{index}" for index in range(count)]
    for topic in topics:
        policy.use(topic, refreshed_at)
    policy.refreshed(topics, refreshed_at)
    return policy


def test_a_new_topic_is_asked_for_alone_and_at_once() -> None:
    policy = policy_with(1_000)
    policy.use("new", 10.0)
    assert policy.next_fetch(10.0) == ["new"]


def test_a_changed_topic_is_urgent() -> None:
    policy = policy_with(5)
    assert policy.next_fetch(1.0) == []
    policy.request_update("t3")
    assert policy.next_fetch(1.0) == ["t3"]
    policy.refreshed(["t3"], 1.0)
    assert policy.next_fetch(1.0) == []


def test_old_topics_are_urgent_even_beyond_the_target() -> None:
    policy = policy_with(100)
    assert len(policy.next_fetch(FULL_AGE)) == 100


def test_half_old_topics_are_fetched_only_as_early_as_small_requests_need() -> None:
    policy = policy_with(MINIMUM_TARGET_SIZE)
    assert policy.next_fetch(FULL_AGE - 1) == [], "one request at the end is enough"
    assert policy.next_check_at(FULL_AGE - 1) == FULL_AGE
    policy = policy_with(MINIMUM_TARGET_SIZE + 5)
    assert policy.next_fetch(HALF_AGE + 74) == []
    assert policy.next_check_at(HALF_AGE + 74) == HALF_AGE + 75
    assert policy.next_fetch(HALF_AGE + 75) == [f"t{index}" for index in range(MINIMUM_TARGET_SIZE)]


def test_half_old_topics_are_added_to_a_fetch_up_to_the_target_size() -> None:
    policy = policy_with(50)
    policy.use("new", HALF_AGE + 1)
    fetch = policy.next_fetch(HALF_AGE + 1)
    assert fetch[0] == "new"
    assert len(fetch) == MINIMUM_TARGET_SIZE


def test_the_target_grows_with_the_topics() -> None:
    assert policy_with(10).target_fetch_size() == 20
    assert policy_with(10_000).target_fetch_size() == 333, "10,000 topics / 300 s * 10"


@pytest.mark.parametrize("count", [1, 20, 21, 100, 1_000, 10_000])
def test_topics_in_use_are_spread_over_time_and_fetched_once_in_each_maximum_age(count: int) -> None:
    policy = policy_with(count)
    refreshed_at = dict.fromkeys((f"t{index}" for index in range(count)), 0.0)
    fetches = []
    now = 0.0
    while now < 10 * FULL_AGE:
        now = policy.next_check_at(now)
        if topics := policy.next_fetch(now):
            fetches.append(len(topics))
            policy.refreshed(topics, now)
            for topic in topics:
                assert now - refreshed_at[topic] <= FULL_AGE, "never stale"
                refreshed_at[topic] = now
    assert max(fetches) <= max(20, count // 30), "never all at once"
    assert sum(fetches) == 10 * count, "as many as by asking for all topics at their maximum age"


def test_topics_that_cannot_be_fetched_are_waited_for_without_a_busy_loop() -> None:
    policy = policy_with(50)
    topics = policy.next_fetch(FULL_AGE)
    policy.failed(topics, FULL_AGE + 1)
    assert policy.next_fetch(FULL_AGE) == []
    assert policy.next_check_at(FULL_AGE) == FULL_AGE + 1
    assert policy.next_fetch(FULL_AGE + 1) == topics


def test_failures_wait_for_the_back_off() -> None:
    policy = MetadataPolicy(MAX_AGE_MS, EVICT_MS)
    policy.use("t", 0.0)
    policy.failed(["t"], 0.1)
    assert policy.next_fetch(0.05) == []
    assert policy.next_check_at(0.05) == 0.1
    assert policy.next_fetch(0.1) == ["t"]


def test_unused_topics_are_forgotten() -> None:
    policy = MetadataPolicy(MAX_AGE_MS, EVICT_MS)
    policy.use("idle", 0.0)
    policy.use("busy", 0.0)
    policy.refreshed(["idle", "busy"], 0.0)
    policy.use("busy", 200.0)
    assert policy.evict(300.0) == ["idle"]
    assert "idle" not in policy
    assert "busy" in policy
    policy.refreshed(["busy"], 300.0)
    policy.use("idle", 301.0)
    assert policy.next_fetch(301.0) == ["idle"], "the next access fetches it again"


@given(st.lists(st.tuples(st.sampled_from(["use", "refresh", "fail", "update", "evict", "wait"]), st.integers(0, 30))))
def test_fetches_obey_the_policy_after_any_sequence_of_events(steps: list[tuple[str, int]]) -> None:
    policy = MetadataPolicy(MAX_AGE_MS, EVICT_MS)
    refreshed: dict[str, float] = {}
    urgent: set[str] = set()
    used: dict[str, float] = {}
    now = 0.0
    for action, number in steps:
        topic = f"t{number}"
        now += 7.0
        if action == "use":
            policy.use(topic, now)
            used[topic] = now
            if topic not in refreshed:
                urgent.add(topic)
        elif action == "refresh" and topic in used:
            policy.refreshed([topic], now)
            refreshed[topic] = now
            urgent.discard(topic)
        elif action == "update" and topic in used:
            policy.request_update(topic)
            urgent.add(topic)
        elif action == "evict":
            for gone in policy.evict(now):
                assert now - used.pop(gone) >= EVICT_MS / 1000
                refreshed.pop(gone, None)
                urgent.discard(gone)
        elif action == "wait":
            now += 10.0 * number
        old = {name for name, at in refreshed.items() if now - at >= FULL_AGE}
        half_old = {name for name, at in refreshed.items() if now - at >= HALF_AGE} - old - urgent
        fetch = policy.next_fetch(now)
        assert len(fetch) == len(set(fetch))
        if urgent | old:
            assert urgent | old <= set(fetch)
            assert set(fetch) - urgent - old <= half_old
            assert len(fetch) <= max(policy.target_fetch_size(), len(urgent | old))
        else:
            assert set(fetch) <= half_old
            assert len(fetch) in (0, min(policy.target_fetch_size(), len(half_old)))
            assert fetch or now < policy.next_check_at(now)


def test_metadata_max_age_ms_of_0_does_not_cause_a_busy_loop() -> None:
    policy = Producer("127.0.0.1:1", metadata_max_age_ms=0, retry_backoff_ms=100)._metadata._policy
    policy.use("t", 0.0)
    policy.refreshed(["t"], 0.0)
    assert policy.next_fetch(0.05) == []
    assert policy.next_check_at(0.05) == pytest.approx(0.1)
    assert policy.next_fetch(0.11) == ["t"]
