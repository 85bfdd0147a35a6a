"""Topics created and deleted while nodes, the controller too, are killed: all nodes have the confirmed ones."""

from __future__ import annotations

import contextlib
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.cluster_of_processes import ClusterOfProcesses, running_cluster, until

pytestmark = pytest.mark.slow

SETTINGS = (
    "broker.session.timeout.ms=1000",
    "broker.heartbeat.interval.ms=100",
    "metadata.log.max.record.bytes.between.snapshots=4000",
)
ROUNDS = 15


class Agreed:
    """A record of the topics that the cluster has confirmed; topics of requests without an answer are in doubt."""

    def __init__(self) -> None:
        self.present: set[str] = set()
        self.in_doubt: set[str] = set()


def change_topics(cluster: ClusterOfProcesses, agreed: Agreed, chance: random.Random, round_number: int) -> None:
    """Create some topics and delete one, each through some broker."""
    for number in range(4):
        name = f"t-{round_number}-{number}"
        agreed.in_doubt.add(name)
        with contextlib.suppress(OSError), cluster.wire(chance.randint(1, 3)) as wire:
            topic = CreatableTopic(name=name, num_partitions=3, replication_factor=1)
            answer = wire.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))
            if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                agreed.present.add(name)
                agreed.in_doubt.discard(name)
    victim = chance.choice(sorted(agreed.present) or [""])
    agreed.present.discard(victim)
    agreed.in_doubt.add(victim)
    with contextlib.suppress(OSError), cluster.wire(chance.randint(1, 3)) as wire:
        (deleted,) = wire.ask(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=[victim])).responses
        if deleted.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            agreed.in_doubt.discard(victim)


def known(cluster: ClusterOfProcesses, node_id: int) -> dict[str, list[tuple[int, int, int]]]:
    """Return the topics that one broker reports: partition, leader and leader epoch."""
    return {
        topic.name or "": [(found.partition_index, found.leader_id, found.leader_epoch) for found in topic.partitions]
        for topic in cluster.metadata(node_id).topics
    }


@pytest.mark.peer
def test_all_brokers_have_the_same_confirmed_topics_after_random_kills(tmp_path: Path) -> None:
    chance = random.Random(5)
    agreed = Agreed()
    with running_cluster(tmp_path, 3, *SETTINGS) as cluster, ThreadPoolExecutor(1) as elsewhere:
        for round_number in range(ROUNDS):
            changing = elsewhere.submit(change_topics, cluster, agreed, chance, round_number)
            broker = cluster.brokers[chance.randint(1, 3)]
            broker.kill()
            broker.start_again()
            changing.result()
        cluster.wait_until_all_see_all()
        until(lambda: known(cluster, 1) == known(cluster, 2) == known(cluster, 3))
        found = known(cluster, 1)
        assert agreed.present <= set(found)
        assert set(found) - agreed.present <= agreed.in_doubt
        assert len(agreed.present) > ROUNDS
        until(lambda: all(leader > 0 for places in known(cluster, 1).values() for _, leader, _ in places))
