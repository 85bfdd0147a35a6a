"""Three brokers, killed, stopped and continued at random under acks=all: no acknowledged record is lost.

An idempotent producer's records are in the log once each and in the order of sending; a producer of old formats has
all that was acknowledged. Of transactions, those are read whose commit was acknowledged, whole and in order; none that
was aborted; one whose answer was lost either whole or not at all. In the end the three copies of every partition are
the same, byte for byte.
"""

from __future__ import annotations

import random
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

import pytest
import trio

from bench.clients import foreign_python
from tests.broker.replicas.replication.failover_checks import check_transactions
from tests.broker.replicas.replication.failover_transactions import (
    COPIES,
    LEDGER,
    PARTITIONS,
    LibrdkafkaWriter,
    TransactionalScene,
)
from tests.broker.replicas.replication.failover_troubles import Troublemaker
from tests.broker.replicas.replication.persistent_producer import PersistentProducer
from tests.broker.replicas.replication.replicated_copies import (
    check_copies,
    check_records,
    make_topics,
    wait_until_all_are_in_sync,
    wait_until_copies_are_alike,
)
from tests.broker.torture_producer import RECORDS_PER_BATCH
from tests.cluster_of_processes import ClusterOfProcesses, running_cluster

pytestmark = pytest.mark.slow

OVERRIDES = (
    "broker.session.timeout.ms=1500",
    "broker.heartbeat.interval.ms=200",
    "replica.lag.time.max.ms=2000",
    "replica.high.watermark.checkpoint.interval.ms=300",
    "log.segment.bytes=300000",
    "log.index.interval.bytes=512",
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=3",
    # Replicas are compacted at different times, so their logs would differ.
    "log.cleaner.enable=false",
)
TARGETS = (
    ("exact", 0),
    (LEDGER, 0),
    ("__consumer_offsets", 0),
    ("__transaction_state", 0),
    ("__transaction_state", 1),
    ("__transaction_state", 2),
)
SINGLE = ("exact", "exact-too", "old")
FINISH_LIMIT_S = 300


@pytest.mark.parametrize("rounds", [1, pytest.param(None, marks=pytest.mark.peer)])
def test_acknowledged_records_survive_failovers(
    tmp_path: Path, rounds: int | None, pytestconfig: pytest.Config
) -> None:
    count = pytestconfig.getoption("--failover-rounds") if rounds is None else rounds
    dice = random.Random(pytestconfig.getoption("--failover-seed"))
    with running_cluster(tmp_path, 3, *OVERRIDES) as cluster, ExitStack() as at_end:
        make_topics(cluster, dict.fromkeys(SINGLE, 2))
        make_topics(cluster, {LEDGER: 2, COPIES: 2}, partitions=PARTITIONS)
        producers = [PersistentProducer(cluster, topic, is_idempotent=topic != "old") for topic in SINGLE]
        foreign = at_end.enter_context(foreign_writer(cluster, tmp_path, rounds))
        transactions = TransactionalScene(cluster.bootstrap, dice, foreign)
        troublemaker = Troublemaker(cluster, dice, producers, TARGETS)
        scenes: list[PersistentProducer | TransactionalScene] = [*producers, transactions]
        for scene in scenes:
            scene.start()
        for number in range(count):
            troublemaker.make_trouble(number)
            for scene in scenes:
                scene.check()
        for scene in scenes:
            scene.finish(FINISH_LIMIT_S)
        wait_until_all_are_in_sync(cluster)
        committed = trio.run(check_transactions, cluster.bootstrap, transactions.writers)
        wait_until_copies_are_alike(tmp_path)
    check_copies(tmp_path)
    for producer in producers:
        check_records(tmp_path, producer.producer)
    acknowledged = sum(len(producer.producer.acknowledged) for producer in producers)
    print(
        f"\n{count} rounds, {acknowledged * RECORDS_PER_BATCH:,} records acknowledged, 0 lost, doubled or reordered; "
        f"{committed:,} records in transactions that were committed, and as many copies; {transactions.summary()}\n"
        f"fail-over, {troublemaker.failover_summary()}"
    )


def foreign_writer(
    cluster: ClusterOfProcesses, directory: Path, rounds: int | None
) -> AbstractContextManager[LibrdkafkaWriter | None]:
    """Return a context with librdkafka's writer for the long torture; an empty context in `make test`."""
    if rounds is not None:
        return nullcontext()
    return LibrdkafkaWriter(foreign_python(), cluster.bootstrap, directory)
