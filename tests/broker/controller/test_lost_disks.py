"""Brokers that restart with an empty disk: intact copies on other brokers stay intact, in sync or not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.broker.controller.cluster_calls import create, fetched, produce
from tests.cluster_of_processes import ClusterOfProcesses, running_cluster, until

pytestmark = pytest.mark.slow

SETTINGS = ("broker.session.timeout.ms=6000", "broker.heartbeat.interval.ms=100", "offsets.topic.num.partitions=1")
UNCLEAN = 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterOfProcesses]:
    with running_cluster(tmp_path, 3, *SETTINGS) as running:
        yield running


def in_sync(cluster: ClusterOfProcesses, topic: str) -> list[int]:
    return sorted(cluster.metadata(1, topic).topics[0].partitions[0].isr_nodes)


def start_on_an_empty_disk(cluster: ClusterOfProcesses, node_id: int) -> None:
    broker = cluster.brokers[node_id]
    broker.kill()
    shutil.rmtree(broker.directory / "logs")
    broker.start_again()
    until(lambda: node_id in cluster.brokers_seen_by(1))


def elect_unclean(cluster: ClusterOfProcesses, topic: str) -> int:
    wanted = TopicPartitions(topic=topic, partitions=[0])
    with cluster.wire(1) as wire:
        answer = wire.ask(
            ApiKey.ELECT_LEADERS, 2, ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=[wanted])
        )
    return int(answer.replica_election_results[0].partition_result[0].error_code)


def test_an_empty_replica_that_was_in_sync_last_does_not_wipe_the_others(cluster: ClusterOfProcesses) -> None:
    create(cluster, 1, "t", on=[2, 3])
    assert produce(cluster, 2, "t", 0, b"precious") == 0
    cluster.brokers[3].stop()
    until(lambda: in_sync(cluster, "t") == [2])
    start_on_an_empty_disk(cluster, 2)
    cluster.brokers[3].start_again()
    cluster.wait_until_all_see_all()
    until(lambda: "has registered without the directory" in cluster.brokers[1].output())
    assert cluster.leaders(1, "t") == [-1]
    assert b"precious" in (cluster.brokers[3].directory / "logs" / "t-0" / f"{0:020d}.log").read_bytes()

    assert elect_unclean(cluster, "t") == 0
    until(lambda: b"precious" in fetched(cluster, 3, "t", 0)[1])
    assert produce(cluster, 3, "t", 0, b"later") == 0
    until(lambda: in_sync(cluster, "t") == [2, 3])
    until(lambda: b"precious" in (cluster.brokers[2].directory / "logs" / "t-0" / f"{0:020d}.log").read_bytes())


def test_after_a_lost_disk_a_sole_replica_starts_empty_and_others_are_copied(cluster: ClusterOfProcesses) -> None:
    create(cluster, 1, "alone", on=[2])
    create(cluster, 1, "shared", on=[2, 3])
    assert produce(cluster, 2, "alone", 0, b"gone") == 0
    assert produce(cluster, 2, "shared", 0, b"copied") == 0
    start_on_an_empty_disk(cluster, 2)
    until(lambda: cluster.leaders(1, "alone") == cluster.leaders(2, "alone") == [2])
    until(lambda: produce(cluster, 2, "alone", 0, b"anew") == 0)
    until(lambda: in_sync(cluster, "shared") == [2, 3])
    until(lambda: b"copied" in fetched(cluster, cluster.leaders(1, "shared")[0], "shared", 0)[1])
