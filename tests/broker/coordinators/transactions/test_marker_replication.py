"""Markers and the followers of the partitions that they are written into."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from gregor.broker.coordinators.transactions.markers import PartitionMarkers
from gregor.broker.metadata.state import PartitionState
from gregor.broker.replicas.partition import Partition
from gregor.broker.replicas.partition_registry import PartitionRegistry
from gregor.broker.replicas.replication.leadership import ReplicationRules
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from gregor.protocol.topic_partition import TopicPartition
from gregor.storage.clock import ManualClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log_manager import LogManager

OFFSETS = "__consumer_offsets"
LEADER, FOLLOWER = 1, 2
HERE, LAGS, NOWHERE = TopicPartition("alone", 0), TopicPartition(OFFSETS, 0), TopicPartition("nowhere", 0)


def state(leader: int, leader_epoch: int) -> PartitionState:
    both = [LEADER, FOLLOWER]
    return PartitionState(0, leader, leader_epoch, both, both, leader_epoch)


class Scene:
    """Two partitions that this broker leads: one without other replicas, and one of group offsets with a follower."""

    def __init__(self, directory: Path) -> None:
        clock = ManualClock(1_700_000_000_000)
        self.ended: list[tuple[int, int, bool]] = []
        self._logs = LogManager([str(directory)], LogConfig(), clock)
        self._logs.open_all()
        alone, self.offsets = (
            Partition(self._logs.create(topic, 0, uuid.uuid4(), LogConfig())) for topic in (HERE.topic, OFFSETS)
        )
        self._rules = ReplicationRules(LEADER, 30_000, clock.now_ms, lambda *_: True, lambda *_: None)
        self.offsets.become_leader(state(LEADER, 1), self._rules)
        registry = PartitionRegistry([alone, self.offsets])
        self.markers = PartitionMarkers(registry, lambda *ended: self.ended.append(ended), clock)

    def follow(self) -> None:
        """Let the follower fetch all records."""
        end = self.offsets.log.log_end_offset
        self.offsets.follower_fetched(FOLLOWER, end, log_start_offset=0, broker_epoch=1)

    def lose_and_lead_again(self) -> None:
        """Let another broker lead for a while, without the newest record, and append a record of its own."""
        self.offsets.become_follower(state(FOLLOWER, 2))
        self.offsets.log.advance_high_watermark(self.offsets.log.log_end_offset)
        self.offsets.become_leader(state(LEADER, 3), self._rules)

    def close(self) -> None:
        self._logs.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.close()


def commit_in(*places: TopicPartition, producer_id: int = 7) -> WritableTxnMarker:
    topics = [WritableTxnMarkerTopic(name=topic, partition_indexes=[index]) for topic, index in places]
    return WritableTxnMarker(producer_id=producer_id, producer_epoch=0, transaction_result=True, topics=topics)


async def test_group_offsets_count_once_their_marker_is_replicated(scene: Scene, autojump_clock: MockClock) -> None:
    scene.markers.write_all([commit_in(LAGS)], 60)
    assert scene.offsets.log.log_end_offset == 1
    assert scene.ended == []
    scene.follow()
    assert scene.ended == [(0, 7, True)]


async def test_a_marker_of_a_former_leader_epoch_is_not_leader_or_follower(
    scene: Scene, autojump_clock: MockClock
) -> None:
    written = scene.markers.write_all([commit_in(LAGS)], 5)
    scene.lose_and_lead_again()
    assert written.result() == [{LAGS: ErrorCode.NOT_LEADER_OR_FOLLOWER}]
    assert scene.ended == []


async def test_markers_of_each_partition_have_their_own_error_code(scene: Scene, autojump_clock: MockClock) -> None:
    """One marker that is not replicated must not fail the other markers of the same request."""
    written = scene.markers.write_all([commit_in(HERE, LAGS, NOWHERE), commit_in(HERE, producer_id=8)], 5)
    scene.offsets.give_up_late(trio.current_time() + 4)
    assert not written.is_complete
    scene.offsets.give_up_late(trio.current_time() + 5)
    assert written.result() == [
        {
            HERE: ErrorCode.NONE,
            LAGS: ErrorCode.REQUEST_TIMED_OUT,
            NOWHERE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        },
        {HERE: ErrorCode.NONE},
    ]
