"""Consumers are sent to a replica in their own rack (KIP-392), as far as Kafka would send them there."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from uuid import UUID

import pytest
import trio

from gregor.broker.config.replication import RACK_AWARE_SELECTOR
from gregor.broker.metadata.state import BrokerState, PartitionState
from gregor.broker.replicas.fetching.near_replicas import RackAwareSelector
from gregor.broker.replicas.partition import Partition
from gregor.broker.replicas.replication.leadership import ReplicationRules
from gregor.client.consumer.consumer import Consumer
from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from gregor.storage.clock import ManualClock
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.broker.controller.cluster_calls import create, fetched, produce
from tests.broker_process import wait_until_it_answers
from tests.cluster_of_processes import NODE_ID, ClusterOfProcesses, running_cluster, until
from tests.storage.forgetful_files import ForgetfulFiles
from tests.storage.payloads import payload
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

LEADER = 1
RACKS = {1: "west", 2: "east", 3: "east", 4: "north", 5: None}


@pytest.fixture
def partition() -> Partition:
    """Return a partition with ten records that broker 1 leads; its followers 2 to 5 have not fetched yet."""
    clock = ManualClock(1_000_000)
    log = PartitionLog.open("/logs/t-0", LogConfig(), clock, pool=OpenFiles(ForgetfulFiles(), max_open=8))
    partition = Partition(log)
    rules = ReplicationRules(LEADER, 1000, clock.now_ms, lambda *_: True, lambda *_: None)
    partition.become_leader(PartitionState(0, LEADER, 1, [*RACKS], [*RACKS]), rules)
    partition.append(payload([b"%d" % number for number in range(10)]))
    return partition


def hold(partition: Partition, **offsets: int) -> None:
    """Let followers fetch: with ``b2=7`` broker 2 has all records below offset 7."""
    for name, offset in offsets.items():
        partition.follower_fetched(int(name[1:]), offset, log_start_offset=0, broker_epoch=1)


def nearest(partition: Partition, rack: str, offset: int = 5, listener: str = "PLAINTEXT") -> int | None:
    brokers = {
        node: BrokerState(node, 1, UUID(int=node), {"PLAINTEXT": ("host", 9092)}, rack, is_fenced=False)
        for node, rack in RACKS.items()
    }
    return RackAwareSelector(rack, listener, brokers).find(partition, offset)


def test_the_selected_replica_is_the_one_in_the_rack_with_the_largest_end_offset(partition: Partition) -> None:
    hold(partition, b2=7, b3=8, b4=10)
    assert nearest(partition, "east") == 3
    assert nearest(partition, "north") == 4


def test_with_equal_end_offsets_the_replica_with_the_higher_broker_id_is_selected(partition: Partition) -> None:
    hold(partition, b2=8, b3=8)
    assert nearest(partition, "east") == 3


def test_the_leader_is_selected_if_it_is_in_the_rack_or_the_rack_is_unknown(partition: Partition) -> None:
    hold(partition, b2=8, b3=8, b4=8)
    assert nearest(partition, "west") is None
    assert nearest(partition, "south") is None


def test_replicas_without_the_offset_are_not_selected(partition: Partition) -> None:
    hold(partition, b2=4, b3=9)
    assert nearest(partition, "east", 10) is None
    assert nearest(partition, "east", 9) == 3
    partition.follower_fetched(3, 9, log_start_offset=6, broker_epoch=1)
    assert nearest(partition, "east", 5) is None
    assert nearest(partition, "east", 4) == 2


def test_replicas_out_of_sync_or_in_other_racks_are_not_selected(partition: Partition) -> None:
    hold(partition, b2=8, b3=9)
    partition.become_leader(PartitionState(0, LEADER, 1, [*RACKS], [1, 2], 1), _rules_of(partition))
    assert nearest(partition, "east") == 2
    assert nearest(partition, "east", listener="INTERNAL") is None


def test_a_follower_selects_no_preferred_read_replica(partition: Partition) -> None:
    hold(partition, b2=8)
    partition.become_follower(PartitionState(0, 2, 2, [*RACKS], [*RACKS]))
    assert nearest(partition, "east") is None


def _rules_of(partition: Partition) -> ReplicationRules:
    assert partition.leadership is not None
    return partition.leadership.rules


# --- on three brokers


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    """Provide three brokers in racks of their own."""
    settings = (f"broker.rack=rack-{NODE_ID}", f"replica.selector.class={RACK_AWARE_SELECTOR}")
    with running_cluster(tmp_path_factory.mktemp("racks"), 3, *settings) as running:
        yield running


def ask(cluster: ClusterOfProcesses, rack: str, version: int, max_wait_ms: int = 0) -> PartitionData:
    """Return the answer of broker 1, the leader of `near`, to a consumer in ``rack``."""
    wanted = FetchTopic(topic="near", partitions=[FetchPartition(partition=0, partition_max_bytes=100_000)])
    with cluster.wire(1) as wire:
        answer = wire.ask(
            ApiKey.FETCH, version, FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[wanted], rack_id=rack)
        )
    found = answer.responses[0].partitions[0]
    assert isinstance(found, PartitionData)
    return found


@pytest.fixture(scope="module")
def topic(cluster: ClusterOfProcesses) -> str:
    """Return a topic that broker 1 leads, with one record that all have."""
    create(cluster, 1, "near", on=[1, 2, 3])
    assert produce(cluster, 1, "near", 0, b"first") == 0
    for node_id in (2, 3):
        until(lambda node_id=node_id: b"first" in fetched(cluster, node_id, "near", 0)[1])  # type: ignore[misc]
    return "near"


def test_leaders_send_consumers_to_their_rack_without_records(cluster: ClusterOfProcesses, topic: str) -> None:
    sent_away = ask(cluster, "rack-3", 12, max_wait_ms=20_000)
    assert (sent_away.preferred_read_replica, sent_away.records, sent_away.high_watermark) == (3, b"", 1)
    for rack, version in (("rack-1", 12), ("elsewhere", 12), ("", 12), ("rack-3", 10)):
        served = ask(cluster, rack, version)
        assert served.preferred_read_replica == -1
        assert served.records


@pytest.fixture
async def consumer(cluster: ClusterOfProcesses, topic: str) -> AsyncIterator[Consumer]:
    """Provide a consumer in the rack of broker 3."""
    async with Consumer(cluster.bootstrap, client_rack="rack-3", auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        yield consumer


async def next_value(consumer: Consumer) -> bytes:
    with trio.fail_after(PATIENCE_S):
        while not (records := await consumer.poll(1000)):
            pass
    return records[-1].value or b""


async def test_a_consumer_reads_in_its_rack_until_that_is_gone(
    cluster: ClusterOfProcesses, topic: str, consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "gregor.client.consumer.fetcher")
    assert await next_value(consumer) == b"first"
    assert "near-0 is read from broker 3, in the same rack" in caplog.messages
    assert await trio.to_thread.run_sync(produce, cluster, 1, topic, 0, b"second") == 0
    assert await next_value(consumer) == b"second"
    cluster.brokers[3].kill()
    try:
        until(lambda: produce(cluster, 1, topic, 0, b"third") == 0)
        assert await next_value(consumer) == b"third"
    finally:
        cluster.brokers[3].respawn()
        wait_until_it_answers(cluster.brokers[3])
        cluster.wait_until_all_see_all()
