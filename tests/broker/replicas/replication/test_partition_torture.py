"""A network between three brokers that is cut at random, and writers and readers on every side of the cuts.

No record acknowledged with acks=all is lost, duplicated or reordered; two readers of any brokers never see different
records at one offset; in the end the three copies of every partition are equal byte for byte.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.broker.replicas.replication.network_cuts import ALL, SETTINGS, Network
from tests.broker.replicas.replication.partisans import Partisan, PartisanReader, PartisanWriter, Sightings
from tests.broker.replicas.replication.persistent_producer import PersistentProducer
from tests.broker.replicas.replication.replicated_copies import (
    check_copies,
    check_records,
    make_topics,
    records_of,
    wait_until_all_are_in_sync,
    wait_until_copies_are_alike,
)
from tests.broker.torture_producer import RECORDS_PER_BATCH
from tests.cluster_of_processes import CONTROLLER, ClusterOfProcesses, running_cluster

pytestmark = pytest.mark.slow

DISPUTED = "disputed"
TOPICS = {"exact-at-1": 2, "exact-at-3": 1, "old-at-2": 2, DISPUTED: 1}
"""Topics of the producers, with their `min.insync.replicas`."""
OVERRIDES = (
    *SETTINGS,
    "broker.session.timeout.ms=1500",
    # Preferred leaders are elected again: else the controller's broker, which is never fenced, would soon lead all.
    "auto.leader.rebalance.enable=true",
    "leader.imbalance.check.interval.seconds=1",
    "replica.high.watermark.checkpoint.interval.ms=300",
    "log.segment.bytes=300000",
    "log.index.interval.bytes=512",
)
FINISH_LIMIT_S = 300
LENGTHS_S = (0.2, 0.7, 2.0, 3.0, 5.0)


def draw_cut(dice: random.Random, cluster: ClusterOfProcesses) -> list[tuple[str, str]]:
    """Draw the fault rules of a cut, each for one broker or `ALL`."""
    action = dice.choice(["stall", "disconnect"])
    one, other, _ = dice.sample(list(cluster.brokers), 3)
    leader = cluster.leaders(CONTROLLER, DISPUTED)[0]
    cuts = {
        "one alone": [(ALL, f"isolate={one} {action}")],
        "the leader alone": [(ALL, f"isolate={leader if leader > 0 else one} {action}")],
        "the controller alone": [(ALL, f"isolate={CONTROLLER} {action}")],
        "the leader unheard": [(str(leader if leader > 0 else one), f"broker={CONTROLLER},{other} {action} at=answer")],
        "all alone": [(ALL, f"isolate={one} {action}"), (ALL, f"isolate={other} {action}")],
        "two apart": [(str(one), f"broker={other} {action}"), (str(other), f"broker={one} {action}")],
        "one way": [(str(one), f"broker={other} {action}")],
        "deaf": [(str(one), f"broker={','.join(str(node) for node in cluster.brokers if node != one)} {action}")],
        "no controller": [(str(CONTROLLER), f"listener=CONTROLLER {action}")],
        "answers lost": [(ALL, f"broker={one} {action} at=answer probability=0.3 seed={dice.randrange(100)}")],
        "frayed": [(ALL, f"isolate={one} disconnect probability=0.3 seed={dice.randrange(100)}")],
        "slow": [(ALL, f"isolate={one} delay=10ms..600ms")],
    }
    name = dice.choice(list(cuts))
    print(f"{name}: {cuts[name]}", flush=True)
    return cuts[name]


@pytest.mark.parametrize("rounds", [1, pytest.param(None, marks=pytest.mark.peer)])
def test_no_split_brain(tmp_path: Path, rounds: int | None, pytestconfig: pytest.Config) -> None:
    count = pytestconfig.getoption("--failover-rounds") if rounds is None else rounds
    dice = random.Random(pytestconfig.getoption("--failover-seed"))
    sightings = Sightings()
    with running_cluster(tmp_path, 3, *OVERRIDES) as cluster:
        make_topics(cluster, TOPICS)
        network = Network(cluster)
        addresses = {node_id: broker.address for node_id, broker in cluster.brokers.items()}
        writers = [PartisanWriter(address, DISPUTED, f"writer at {node}") for node, address in addresses.items()]
        readers = [
            PartisanReader(address, DISPUTED, f"broker {node}", sightings) for node, address in addresses.items()
        ]
        producers = [
            PersistentProducer(cluster, topic, is_idempotent="exact" in topic, side=int(topic[-1]))
            for topic in TOPICS
            if topic != DISPUTED
        ]
        threads: list[Partisan | PersistentProducer] = [*writers, *readers, *producers]
        for thread in threads:
            thread.start()
        for number in range(count):
            print(f"{number}: ", end="")
            network.cut(*draw_cut(dice, cluster))
            time.sleep(dice.choice(LENGTHS_S))
            network.heal()
            time.sleep(dice.choice(LENGTHS_S[:3]))
            assert [thread.failure for thread in threads if thread.failure] == []
        for producer in producers:
            producer.finish(FINISH_LIMIT_S)
        for writer in writers:
            writer.stop()
        wait_until_all_are_in_sync(cluster)
        wait_until_copies_are_alike(tmp_path)
        for reader in readers:
            reader.stop()
    check_copies(tmp_path)
    for producer in producers:
        check_records(tmp_path, producer.producer)
    held = records_of(tmp_path, DISPUTED)
    for promised in (sightings.values, *(writer.acknowledged for writer in writers)):
        assert {offset: held.get(offset) for offset in promised} == promised
    batches = sum(len(producer.producer.acknowledged) for producer in producers)
    acknowledged = batches * RECORDS_PER_BATCH + sum(len(writer.acknowledged) for writer in writers)
    is_kept = [held.get(offset) == value for writer in writers for value, offset in writer.taken.items()]
    print(
        f"\n{count} rounds, {acknowledged:,} records acknowledged with acks=all, 0 lost, doubled or reordered; "
        f"{len(is_kept):,} with acks=1, {is_kept.count(False):,} lost; "
        f"{len(sightings.values):,} seen, all of them alike"
    )
