"""The replication throttle: the replicas that wait, by configuration and rate."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from gregor.broker.config import BrokerConfig
from gregor.broker.metadata.changes import BrokerConfigChanged, TopicConfigChanged, TopicDeleted
from gregor.broker.metadata.state import PartitionState, TopicState
from gregor.broker.metadata.store import MetadataStore
from gregor.broker.replicas.replication.throttle import (
    LEADER_REPLICAS,
    RecentRate,
    ReplicationThrottle,
    ReplicationThrottles,
)
from gregor.broker.server.sampled_rate import Window
from gregor.storage.clock import ManualClock

ME = 1


def topic(name: str, replicas: str) -> TopicState:
    partitions = [PartitionState(index, ME, 0, [ME, 2], [ME, 2]) for index in range(3)]
    return TopicState(name, UUID(int=7), partitions, {LEADER_REPLICAS: replicas})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def throttle(clock: ManualClock) -> ReplicationThrottle:
    made = ReplicationThrottle(Window(11, 1000), ME, clock.now_ms, LEADER_REPLICAS)
    made.limit = 1000
    return made


@pytest.mark.parametrize(
    ("replicas", "throttled"),
    [("", []), ("*", [0, 1, 2]), ("0:1,1:2,2:1", [0, 2]), (" 1 : 1 ", [1]), ("0:2", [])],
)
def test_throttled_replicas_are_parsed_from_their_setting(
    throttle: ReplicationThrottle, replicas: str, throttled: list[int]
) -> None:
    throttle.take_topic(topic("t", replicas))
    assert [index for index in range(3) if throttle.is_throttled("t", index)] == throttled
    assert not throttle.is_throttled("another", 0)
    assert throttle.is_active == bool(throttled)


def test_a_throttled_replica_waits_until_its_rate_is_below_the_limit(
    throttle: ReplicationThrottle, clock: ManualClock
) -> None:
    throttle.take_topic(topic("t", "0:1"))
    assert not throttle.must_wait("t", 0)
    throttle.record("t", 1, 10_000)
    assert not throttle.must_wait("t", 0)
    throttle.record("t", 0, 5_000)
    assert throttle.must_wait("t", 0)
    assert not throttle.must_wait("t", 1)
    clock.advance(4_999)
    assert throttle.must_wait("t", 0)
    clock.advance(1)
    assert not throttle.must_wait("t", 0)


def test_a_rate_is_measured_since_its_start_and_over_at_least_one_sample() -> None:
    """As in Kafka's SimpleRate, the rate is that over at least one sample, not over the whole window."""
    rate = RecentRate(Window(11, 1000))
    rate.record(1500, 0)
    assert rate.exceeds(1000, 500)
    assert rate.exceeds(1000, 1499)
    assert not rate.exceeds(1000, 1500)
    assert not rate.exceeds(0, 11_000)


@pytest.fixture
def throttles(tmp_path: Path, clock: ManualClock) -> tuple[ReplicationThrottles, MetadataStore]:
    metadata = MetadataStore(BrokerConfig({"node.id": "1", "log.dirs": str(tmp_path)}), clock)
    return ReplicationThrottles(metadata.config, metadata, clock.now_ms), metadata


def test_throttle_configuration_changes_take_effect_at_run_time(
    throttles: tuple[ReplicationThrottles, MetadataStore],
) -> None:
    both, metadata = throttles
    known = topic("t", "*")
    metadata.state.topics["t"] = known
    both.start()
    (tell,) = metadata._subscribers
    assert not both.leader.is_active
    metadata.config.override({}, {"leader.replication.throttled.rate": "10"})
    tell(BrokerConfigChanged())
    assert (both.leader.limit, both.leader.is_active, both.follower.is_active) == (10, True, False)
    known.configs.clear()
    tell(TopicConfigChanged(known))
    assert not both.leader.is_active
    known.configs[LEADER_REPLICAS] = "*"
    tell(TopicConfigChanged(known))
    assert both.leader.is_throttled("t", 2)
    tell(TopicDeleted(known))
    metadata.config.override({}, {})
    tell(BrokerConfigChanged())
    assert not both.leader.is_active
    assert not both.leader.is_throttled("t", 2)
