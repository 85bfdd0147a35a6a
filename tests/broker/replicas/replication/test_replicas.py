"""Partitions of one broker in a cluster: the broker's logs, and their leaders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from gregor.broker.config import BrokerConfig
from gregor.broker.metadata.changes import PartitionsAdded, PartitionsChanged, TopicDeleted
from gregor.broker.metadata.state import PartitionState, TopicState
from gregor.broker.metadata.store import MetadataStore
from gregor.broker.replicas.partition import Partition
from gregor.broker.replicas.partition_registry import PartitionRegistry
from gregor.broker.replicas.replication.leadership import InSyncChange, ReplicationRules
from gregor.broker.replicas.replication.replicas import Copying, Replicas
from gregor.storage.clock import ManualClock
from gregor.storage.log.partition_log import PartitionLog
from gregor.storage.log_manager import LogManager
from tests.storage.payloads import append

ME, OTHER = 1, 2


class Noted:
    """A substitute for the tasks of a cluster that records its calls."""

    def __init__(self, clock: ManualClock) -> None:
        self.copied: dict[str, int] = {}
        self.told: list[str] = []
        self.rules = ReplicationRules(ME, 30_000, clock.now_ms, lambda *_: True, self._wish)
        self.copying: Copying = self

    def _wish(self, log: PartitionLog, change: InSyncChange) -> None:
        self.told.append("wish")

    def follow(self, partition: Partition, leader_id: int) -> None:
        self.copied[partition.topic] = leader_id

    def forget(self, partition: Partition) -> None:
        self.copied.pop(partition.topic, None)

    def elected(self, partition: Partition) -> None:
        self.told.append(f"elected {partition.topic} {partition.leader_epoch}")

    def resigned(self, partition: Partition) -> None:
        self.told.append(f"resigned {partition.topic}")


class Broker:
    """Broker 1 with its replicas, and the metadata that assigns them."""

    def __init__(self, directory: Path) -> None:
        clock = ManualClock(1_000)
        config = BrokerConfig(log_dirs=(str(directory),))
        self.logs = LogManager(config.log_dirs, config.log_config(), clock, node_id=ME)
        self.logs.open_all()
        self.metadata = MetadataStore(config, clock)
        self.partitions = PartitionRegistry()
        self.noted = Noted(clock)
        self.replicas = Replicas(self.metadata, self.logs, self.partitions, self.noted)
        self.replicas.listen(self.noted)

    def add(self, name: str, leader: int, replicas: list[int], *, topic_id: int = 7) -> TopicState:
        topic = TopicState(name, UUID(int=topic_id), [PartitionState(0, leader, 0, replicas, replicas)])
        self.metadata.state.topics[name] = topic
        self.replicas.apply(PartitionsAdded(topic, 0))
        return topic

    def change(self, topic: TopicState, leader: int, replicas: list[int]) -> None:
        state = topic.partitions[0]
        state.leader, state.replicas, state.isr = leader, replicas, list(replicas)
        state.leader_epoch += 1
        state.partition_epoch += 1
        self.replicas.apply(PartitionsChanged(topic, (0,)))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    yield broker
    broker.logs.close()


def test_no_replica_leads_before_the_metadata_has_caught_up(broker: Broker) -> None:
    broker.add("t", ME, [ME, OTHER])
    partition = broker.partitions.get("t", 0)
    assert not partition.is_leader
    broker.replicas.take_roles()
    assert partition.is_leader
    assert broker.noted.told == ["elected t 0"]


def test_a_replica_becomes_leader_and_follower_as_the_metadata_changes(broker: Broker) -> None:
    broker.replicas.take_roles()
    topic = broker.add("t", OTHER, [OTHER, ME])
    partition = broker.partitions.get("t", 0)
    assert broker.noted.copied == {"t": OTHER}
    broker.change(topic, ME, [OTHER, ME])
    assert partition.is_leader
    assert broker.noted.copied == {}
    broker.change(topic, -1, [OTHER, ME])
    broker.change(topic, OTHER, [OTHER, ME])
    assert broker.noted.copied == {"t": OTHER}
    assert broker.noted.told == ["elected t 1", "resigned t"]


def test_a_single_replica_leads_and_followers_can_be_added_and_removed(broker: Broker) -> None:
    broker.replicas.take_roles()
    topic = broker.add("t", ME, [ME])
    partition = broker.partitions.get("t", 0)
    assert partition.role is None
    append(partition.log, b"a")
    broker.change(topic, ME, [ME, OTHER])
    assert partition.leadership is not None
    assert partition.log.high_watermark == 1
    broker.change(topic, ME, [ME])
    assert partition.role is None
    assert broker.noted.told == ["elected t 0", "elected t 1", "elected t 2"]


def test_a_replica_that_has_moved_away_leaves_nothing(broker: Broker) -> None:
    broker.replicas.take_roles()
    topic = broker.add("t", ME, [ME, OTHER])
    broker.change(topic, OTHER, [OTHER])
    assert broker.partitions.find("t", 0) is None
    assert broker.logs.get("t", 0) is None
    broker.change(topic, OTHER, [OTHER, ME])
    assert broker.noted.copied == {"t": OTHER}
    broker.replicas.apply(TopicDeleted(topic))
    assert broker.noted.copied == {}
    assert broker.noted.told == ["elected t 0", "resigned t"]


def test_records_of_an_older_topic_of_that_name_do_not_count(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    append(broker.logs.create("t", 0, UUID(int=6)), b"of another topic")
    broker.add("t", OTHER, [OTHER, ME], topic_id=7)
    log = broker.partitions.get("t", 0).log
    assert (log.topic_id, log.log_end_offset) == (UUID(int=7), 0)
    broker.logs.close()


def test_a_log_without_a_topic_id_gets_the_topic_id(tmp_path: Path) -> None:
    """The broker was killed while it created the log: leaders cannot identify the topic of a fetch without an id."""
    broker = Broker(tmp_path)
    append(broker.logs.create("t", 0), b"kept")
    broker.add("t", OTHER, [OTHER, ME], topic_id=7)
    log = broker.partitions.get("t", 0).log
    assert (log.topic_id, log.log_end_offset) == (UUID(int=7), 1)
    broker.logs.close()
    again = Broker(tmp_path)
    assert again.logs.create("t", 0).topic_id == UUID(int=7)
    again.logs.close()
