"""Exactly once: Kafka's own transactional copiers, while they and the broker are killed at random.

Those of Kafka 3.9.1, and those of 4.3.0 with transactions V2 (KIP-890).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from tests.broker_process import BrokerProcess, running_broker
from tests.wire import Wire

INPUT, OUTPUT = "torture-input", "torture-output"
PARTITIONS = 2
RECORDS_PER_PARTITION = 4_000
RECORDS_PER_TRANSACTION = 8
KILLS = 10
LIMIT_S = 1_500
PEER_RELEASE = "3.9.1"
"""Release that the peer's script starts by default."""

pytestmark = pytest.mark.peer


class Copier:
    """A Kafka TransactionalMessageCopier of one partition that is started again whenever it ends."""

    def __init__(self, script: Path, broker: BrokerProcess, partition: int, release: str) -> None:
        self._environment = {**os.environ, "KAFKA_HEAP_OPTS": "-Xmx128m"}
        if release != PEER_RELEASE:
            home = Path.home() / ".cache" / f"peer-kafka-{release}"
            self._environment |= {"PEER_VERSION": release, "PEER_HOME": str(home)}
        self._command = [str(script), "tool", "org.apache.kafka.tools.TransactionalMessageCopier"]
        self._command += ["--broker-list", broker.bootstrap, "--input-topic", INPUT, "--output-topic", OUTPUT]
        self._command += ["--input-partition", str(partition), "--transactional-id", f"copier-{partition}"]
        self._command += ["--transaction-size", str(RECORDS_PER_TRANSACTION), "--max-messages", str(1 << 30)]
        self._command += ["--consumer-group", "copiers", "--use-group-metadata", "--enable-random-aborts"]
        self._process: subprocess.Popen[bytes] | None = None

    def ensure_running(self) -> None:
        """Start the copier unless it runs; a copier ends once all records are copied."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill the process with SIGKILL, at any point of its work."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def finalize(broker: BrokerProcess, transaction_version: int) -> None:
    """Enable transactions V2, or leave them disabled."""
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=transaction_version)
    with Wire(broker.address) as wire:
        answer = wire.ask(ApiKey.UPDATE_FEATURES, 1, UpdateFeaturesRequest(feature_updates=[update]))
    assert [result.error_code for result in answer.results] == [ErrorCode.NONE]


def make_topics(broker: BrokerProcess) -> None:
    topics = [CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1) for name in (INPUT, OUTPUT)]
    with Wire(broker.address) as wire:
        wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=topics, timeout_ms=9_000))
        for partition in range(PARTITIONS):
            for first in range(0, RECORDS_PER_PARTITION, 100):
                produce_input(wire, partition, range(first, first + 100))


def produce_input(wire: Wire, partition: int, numbers: range) -> None:
    now_ms = int(time.time() * 1000)
    batch = v2.build_batch(
        [Record(offset, now_ms, b"k", value_of(partition, number)) for offset, number in enumerate(numbers)]
    )
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(name=INPUT, partition_data=[PartitionProduceData(index=partition, records=batch)])
        ],
    )
    answer = wire.ask(ApiKey.PRODUCE, 7, request).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NONE


def value_of(partition: int, number: int) -> bytes:
    return b"%d-%d" % (partition, number)


def committed_output(script: Path, broker: BrokerProcess) -> list[bytes]:
    """Return the committed records that Kafka's console consumer reads until none arrives for a while."""
    command = [str(script), "tool", "org.apache.kafka.tools.consumer.ConsoleConsumer"]
    command += ["--bootstrap-server", broker.bootstrap, "--topic", OUTPUT, "--from-beginning"]
    command += ["--isolation-level", "read_committed", "--timeout-ms", "5000"]
    done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
    return done.stdout.split()


@pytest.mark.parametrize(("release", "transaction_version"), [(PEER_RELEASE, 0), ("4.3.0", 2)])
def test_transactional_copiers_copy_each_record_once_despite_kills(
    shared: Path, tmp_path: Path, release: str, transaction_version: int
) -> None:
    script = shared / "peer" / "kafka39"
    dice = random.Random(283)
    with running_broker(tmp_path, "offsets.topic.num.partitions=4", "transaction.state.log.num.partitions=4") as broker:
        finalize(broker, transaction_version)
        make_topics(broker)
        copiers = [Copier(script, broker, partition, release) for partition in range(PARTITIONS)]
        try:
            output = _copy_among_kills(script, broker, copiers, dice)
        finally:
            for copier in copiers:
                copier.kill()
    expected = sorted(value_of(p, number) for p in range(PARTITIONS) for number in range(RECORDS_PER_PARTITION))
    assert sorted(output) == expected


def _copy_among_kills(script: Path, broker: BrokerProcess, copiers: list[Copier], dice: random.Random) -> list[bytes]:
    """Kill the broker or a copier every few seconds, then let the copiers finish; returns the committed output."""
    deadline = time.monotonic() + LIMIT_S
    kills = 0
    while True:
        for copier in copiers:
            copier.ensure_running()
        time.sleep(dice.uniform(1.5, 4))
        if kills < KILLS:
            kills += 1
            if dice.random() < 0.5:
                broker.kill()
                broker.start_again()
            else:
                dice.choice(copiers).kill()
            continue
        output = committed_output(script, broker)
        if len(output) >= PARTITIONS * RECORDS_PER_PARTITION or time.monotonic() > deadline:
            return output
