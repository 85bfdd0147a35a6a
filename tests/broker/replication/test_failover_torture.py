"""Three brokers, killed, stopped and let go on at random under acks=all: nothing acknowledged is lost.

An idempotent producer's records are in the log once each and in the order of sending; a producer of old formats has
all that was acknowledged. In the end the three copies of every partition are the same, byte for byte.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker.replication.persistent_producer import PersistentProducer
from tests.broker.replication.replicated_copies import (
    check_copies,
    check_records,
    make_topics,
    wait_until_all_are_in_sync,
)
from tests.broker.torture_producer import RECORDS_PER_BATCH
from tests.broker_process import wait_until_it_answers
from tests.cluster_of_processes import CONTROLLER, ClusterOfProcesses, running_cluster, until

OVERRIDES = (
    "broker.session.timeout.ms=1500",
    "broker.heartbeat.interval.ms=200",
    "replica.lag.time.max.ms=2000",
    "replica.high.watermark.checkpoint.interval.ms=300",
    "log.segment.bytes=300000",
    "log.index.interval.bytes=512",
    "offsets.topic.num.partitions=1",
)
START_LIMIT_S = 90.0
"""This runs for minutes, beside whatever else the machine has to do."""
TOPICS = ("exact", "exact-too", "old")
TROUBLES = ("kill", "kill", "kill the leader", "stop", "stop the leader", "kill two")


@pytest.mark.parametrize("rounds", [2, pytest.param(None, marks=pytest.mark.peer)])
def test_what_is_acknowledged_survives_its_leaders(
    tmp_path: Path, rounds: int | None, pytestconfig: pytest.Config
) -> None:
    count = pytestconfig.getoption("--failover-rounds") if rounds is None else rounds
    dice = random.Random(pytestconfig.getoption("--failover-seed"))
    with running_cluster(tmp_path, 3, *OVERRIDES) as cluster:
        make_topics(cluster, dict.fromkeys(TOPICS, 2))
        producers = [PersistentProducer(cluster, topic, is_idempotent=topic != "old") for topic in TOPICS]
        for producer in producers:
            producer.start()
        for number in range(count):
            make_trouble(cluster, dice, number)
            for producer in producers:
                assert producer.failure is None, producer.failure
        for producer in producers:
            producer.finish(120)
        wait_until_all_are_in_sync(cluster, TOPICS)
    for producer in producers:
        check_copies(tmp_path, producer.producer.topic)
        check_records(tmp_path, producer.producer)
    acknowledged = sum(len(producer.producer.acknowledged) for producer in producers)
    silence_s = max(producer.longest_silence_s for producer in producers)
    print(
        f"\n{count} rounds, {acknowledged * RECORDS_PER_BATCH:,} records acknowledged, 0 lost, doubled or reordered; "
        f"longest silence {silence_s:.1f} s"
    )


def make_trouble(cluster: ClusterOfProcesses, dice: random.Random, number: int) -> None:
    """Hurt one broker or two, wait, let them recover, wait again."""
    trouble = dice.choice(TROUBLES)
    victims = [dice.choice(list(cluster.brokers))]
    if trouble.endswith("the leader"):
        leader = until(lambda: cluster.leaders(CONTROLLER, "exact")[0])
        victims = [leader] if leader in cluster.brokers else victims
    elif trouble == "kill two":
        victims = dice.sample(list(cluster.brokers), 2)
    print(f"{number}: {trouble}: {victims}", flush=True)
    if trouble.startswith("stop"):
        with stopped(cluster, victims[0]):
            time.sleep(dice.choice([0.1, 0.5, 2.5, 4.5]))
    else:
        for victim in victims:
            cluster.brokers[victim].kill()
        time.sleep(dice.choice([0.0, 0.3, 2.5]))
        for victim in victims:
            cluster.brokers[victim].respawn()
        for victim in victims:
            wait_until_it_answers(cluster.brokers[victim], START_LIMIT_S)
    time.sleep(dice.uniform(0.0, 2.5))


@contextmanager
def stopped(cluster: ClusterOfProcesses, node_id: int) -> Iterator[None]:
    """A broker that does nothing for a while, and knows nothing of it."""
    process = cluster.brokers[node_id].process
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)
