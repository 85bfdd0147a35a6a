"""Placement of the replicas of new partitions, in a cluster of several brokers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest

from gregor.broker.config import BrokerConfig
from gregor.broker.metadata.new_topics import on_first_use
from gregor.broker.metadata.replica_placement import alternate_racks, spread
from gregor.broker.metadata.store import MetadataStore
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.messages.cluster_metadata_records import RegisterBrokerRecord
from gregor.storage.clock import ManualClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log_manager import LogManager
from tests.broker.metadata.test_metadata_follower import CONTROLLER


def test_each_broker_leads_as_much_as_any_other() -> None:
    placed = spread(12, 3, [1, 2, 3, 4])
    assert Counter(replicas[0] for replicas in placed) == {1: 3, 2: 3, 3: 3, 4: 3}
    assert Counter(node for replicas in placed for node in replicas) == {1: 9, 2: 9, 3: 9, 4: 9}
    assert all(len(set(replicas)) == 3 for replicas in placed)


def test_the_partitions_of_a_broker_that_dies_find_leaders_on_all_others() -> None:
    placed = spread(12, 2, [1, 2, 3, 4])
    assert {replicas[1] for replicas in placed if replicas[0] == 1} == {2, 3, 4}


def test_replicas_of_a_partition_are_in_different_racks() -> None:
    order = alternate_racks({1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"})
    assert order == [1, 3, 5, 2, 4, 6]
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    assert all(len({racks[node] for node in replicas}) == 3 for replicas in spread(6, 3, order))


def test_racks_are_ignored_unless_every_broker_has_one() -> None:
    assert alternate_racks({2: "a", 1: None, 3: "b"}) == [1, 2, 3]


def test_too_few_brokers_get_invalid_replication_factor() -> None:
    with pytest.raises(BrokerError) as refused:
        spread(1, 3, [1, 2])
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def cluster(tmp_path: Path, *fenced: bool, **settings: str) -> MetadataStore:
    """Return the controller's metadata with a broker for each flag, numbered from 1."""
    config = BrokerConfig({**CONTROLLER, **{name.replace("_", "."): value for name, value in settings.items()}})
    logs = LogManager([str(tmp_path)], LogConfig(), ManualClock(1000))
    logs.open_all()
    store = MetadataStore(config, ManualClock(1000))
    store.open(logs)
    for node_id, is_fenced in enumerate(fenced, 1):
        store.commit([RegisterBrokerRecord(broker_id=node_id, incarnation_id=UUID(int=node_id), fenced=is_fenced)])
    return store


def test_fenced_brokers_get_new_replicas_only_by_explicit_assignment(tmp_path: Path) -> None:
    store = cluster(tmp_path, False, True, False)
    topic = store.create_topic("a", partitions=6, replication_factor=2)
    assert {node for partition in topic.partitions for node in partition.replicas} == {1, 3}
    (by_hand,) = store.create_topic("b", assignments=[(0, [2, 3])]).partitions
    assert (by_hand.replicas, by_hand.isr, by_hand.leader) == ([2, 3], [3], 3)
    with pytest.raises(BrokerError, match="fenced or in controlled shutdown"):
        store.create_topic("c", assignments=[(0, [2])])


def test_leaders_of_topics_with_one_partition_are_spread_over_all_brokers(tmp_path: Path) -> None:
    store = cluster(tmp_path, False, False, False)
    leaders = {store.create_topic(f"t{number}").partitions[0].leader for number in range(60)}
    assert leaders == {1, 2, 3}


def test_two_brokers_give_internal_topics_two_replicas_unless_configured(tmp_path: Path) -> None:
    store = cluster(tmp_path / "default", False, False)
    assert on_first_use(store, "__consumer_offsets").replication_factor == 2
    assert on_first_use(store, "__transaction_state").configs["min.insync.replicas"] == "2"
    told = cluster(tmp_path / "told", False, False, offsets_topic_replication_factor="3")
    assert on_first_use(told, "__consumer_offsets").replication_factor == 3
    with pytest.raises(BrokerError) as refused:
        told.ensure_topic("__consumer_offsets")
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
