"""The command-line tools and the system tests' clients of Apache Kafka 3.9.1 against our broker."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from gregor.protocol.messages.init_producer_id import InitProducerIdRequest
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.batches import Record
from tests.broker_process import BrokerProcess
from tests.cluster_of_processes import until
from tests.wire import Wire

pytestmark = pytest.mark.peer

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"

TOOL_LIMIT_S = 600
NUMBERS = itertools.count()


@dataclass(frozen=True)
class Kafka:
    """A runner of Kafka's tools against one broker."""

    script: Path
    broker: BrokerProcess

    def run(self, tool: str, *arguments: str) -> str:
        """Run the tool without errors or warnings; return its standard output."""
        to_broker = "--broker-list" if tool == COPIER else "--bootstrap-server"
        command = [str(self.script), "tool", tool, to_broker, self.broker.bootstrap, *arguments]
        if tool == GROUPS:
            # Only this tool gives up after five seconds.
            command += ["--timeout", str(TOOL_LIMIT_S * 1000)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_LIMIT_S)
        assert run.returncode == 0, run.stdout + run.stderr
        assert "Exception" not in run.stdout + run.stderr
        return run.stdout

    def events(self, tool: str, *arguments: str) -> dict[str, Any]:
        """Return the last event of each name in the JSON lines of one of the system tests' clients."""
        lines = self.run(tool, *arguments).splitlines()
        return {event.get("name") or event["stage"]: event for event in map(json.loads, lines)}

    def create_topic(self, *, partitions: int = 1, records: int = 0) -> str:
        """Create a topic with the records "0", "1" and so on, in order if it has one partition."""
        topic = f"topic-{next(NUMBERS)}"
        self.run(TOPICS, "--create", "--topic", topic, "--partitions", str(partitions))
        if records:
            events = self.events(PRODUCER, "--topic", topic, "--max-messages", str(records))
            assert (events["tool_data"]["sent"], events["tool_data"]["acked"]) == (records, records)
        return topic


@pytest.fixture
def kafka(shared: Path, broker_process: BrokerProcess) -> Kafka:
    script = shared / "peer" / "kafka39"
    if not script.exists() or shutil.which("java") is None:
        pytest.skip("Kafka's tools need ../shared/peer and a Java 17")
    return Kafka(script, broker_process)


def test_kafka_topics_lists_alters_describes_and_deletes_topics(kafka: Kafka) -> None:
    topic = kafka.create_topic(partitions=2)
    assert topic in kafka.run(TOPICS, "--list").split()
    kafka.run(TOPICS, "--alter", "--topic", topic, "--partitions", "3")
    described = kafka.run(TOPICS, "--describe", "--topic", topic)
    assert "PartitionCount: 3\tReplicationFactor: 1\t" in described
    assert described.count("Leader: 1\tReplicas: 1\tIsr: 1") == 3
    assert kafka.run(TOPICS, "--describe", "--under-replicated-partitions").strip() == ""
    kafka.run(TOPICS, "--delete", "--topic", topic)
    assert topic not in kafka.run(TOPICS, "--list").split()


@pytest.mark.parametrize(
    ("kind", "name", "setting"),
    [
        ("topics", "", "retention.ms=1234"),
        ("brokers", "1", "log.cleaner.threads=2"),
        ("clients", "somebody", "producer_byte_rate=1048576.0"),
        ("client-metrics", "producers", "interval.ms=2000"),
    ],
)
def test_kafka_configs_sets_describes_and_deletes_configs(kafka: Kafka, kind: str, name: str, setting: str) -> None:
    entity = ["--entity-type", kind, "--entity-name", name or kafka.create_topic()]
    assert "Completed updating config" in kafka.run(CONFIGS, "--alter", *entity, "--add-config", setting)
    assert setting in kafka.run(CONFIGS, "--describe", *entity)
    kafka.run(CONFIGS, "--alter", *entity, "--delete-config", setting.partition("=")[0])
    assert setting not in kafka.run(CONFIGS, "--describe", *entity)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_verifiable_consumer_and_kafka_consumer_groups_work(kafka: Kafka, protocol: str) -> None:
    topic = kafka.create_topic(records=30)
    group = f"{protocol}-group"
    reading = ["--group-id", group, "--max-messages", "30", "--reset-policy", "earliest", "--group-protocol", protocol]
    events = kafka.events(CONSUMER, "--topic", topic, *reading)
    assert events["partitions_assigned"]["partitions"] == [{"topic": topic, "partition": 0}]
    assert events["records_consumed"]["partitions"][0]["maxOffset"] == 29
    assert events["offsets_committed"]["offsets"] == [{"topic": topic, "partition": 0, "offset": 30}]

    assert re.search(rf"^{group} +Empty *$", kafka.run(GROUPS, "--list", "--state"), re.MULTILINE)
    kind = protocol.capitalize()
    assert re.search(rf"^{group} +{kind} *$", kafka.run(GROUPS, "--list", "--type"), re.MULTILINE)
    assert re.search(rf"{topic} +0 +30 +30 +0 ", kafka.run(GROUPS, "--describe", "--group", group))
    kafka.run(GROUPS, "--reset-offsets", "--group", group, "--topic", topic, "--shift-by", "-10", "--execute")
    assert re.search(rf"{topic} +0 +20 +30 +10 ", kafka.run(GROUPS, "--describe", "--group", group))
    assert "was successful" in kafka.run(GROUPS, "--delete", "--group", group)
    assert group not in kafka.run(GROUPS, "--list").split()


def test_kafka_get_offsets_delete_records_and_log_dirs_work(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=1, records=10)
    wanted = tmp_path / "wanted.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 4}], "version": 1}))
    assert f"partition: {topic}-0\tlow_watermark: 4" in kafka.run(DELETE_RECORDS, "--offset-json-file", str(wanted))
    for time, offset in (("earliest", 4), ("latest", 10)):
        assert kafka.run(OFFSETS, "--topic", topic, "--time", time).strip() == f"{topic}:0:{offset}"
    report = kafka.run(LOG_DIRS, "--describe", "--topic-list", topic).splitlines()[-1]
    (directory,) = json.loads(report)["brokers"][0]["logDirs"]
    assert directory["error"] is None
    (partition,) = directory["partitions"]
    assert (partition["partition"], partition["isFuture"]) == (f"{topic}-0", False)
    assert partition["size"] > 0


def test_metadata_quorum_and_features_are_described(kafka: Kafka) -> None:
    status = kafka.run(QUORUM, "describe", "--status")
    assert re.search(r"LeaderId: +1\b", status)
    assert re.search(r"Feature: metadata\.version\s.*FinalizedVersionLevel: 3\.9-IV0", kafka.run(FEATURES, "describe"))


def test_transactions_v2_are_switched_on_and_off(kafka: Kafka) -> None:
    switched = kafka.run(FEATURES, "upgrade", "--feature", "transaction.version=2")
    assert "transaction.version was upgraded to 2." in switched
    assert re.search(r"Feature: transaction\.version\s.*FinalizedVersionLevel: 2", kafka.run(FEATURES, "describe"))
    kafka.run(FEATURES, "downgrade", "--feature", "transaction.version=0")
    assert "transaction.version" not in kafka.run(FEATURES, "describe")


def test_transactional_copier_with_random_aborts(kafka: Kafka) -> None:
    source, target = kafka.create_topic(records=60), kafka.create_topic()
    copying = ["--input-topic", source, "--input-partition", "0", "--output-topic", target, "--max-messages", "60"]
    identity = ["--transactional-id", "copier", "--consumer-group", "copiers", "--use-group-metadata"]
    events = kafka.events(COPIER, *copying, *identity, "--transaction-size", "7", "--enable-random-aborts")
    assert (events["ShutdownComplete"]["consumed"], events["ShutdownComplete"]["remaining"]) == (60, 0)
    reading = ["--from-beginning", "--isolation-level", "read_committed", "--max-messages", "60"]
    copied = kafka.run(CONSOLE_CONSUMER, "--topic", target, *reading).split()
    assert copied == [str(number) for number in range(60)]
    ended = re.compile(r"^copier +\t1 +\t\d+ +\tComplete(Commit|Abort) ", re.MULTILINE)
    until(lambda: ended.search(kafka.run(TRANSACTIONS, "list")))


def test_kafka_transactions_aborts_an_open_transaction(kafka: Kafka) -> None:
    topic = kafka.create_topic()
    producer_id = leave_a_transaction_open(kafka.broker, topic)
    described = kafka.run(TRANSACTIONS, "describe", "--transactional-id", "left open")
    assert re.search(rf"\t{producer_id} +\t0 +\tOngoing +\t.*{topic}-0", described)
    partition = ["--topic", topic, "--partition", "0"]
    described = kafka.run(TRANSACTIONS, "describe-producers", *partition)
    assert re.search(rf"^{producer_id} +\t0 +\t.*\t0 +\t$", described, re.MULTILINE)
    kafka.run(TRANSACTIONS, "abort", *partition, "--start-offset", "0")
    described = kafka.run(TRANSACTIONS, "describe-producers", *partition)
    assert re.search(rf"^{producer_id} +\t0 +\t.*\tNone", described, re.MULTILINE)
    assert len(kafka.run(TRANSACTIONS, "find-hanging", "--broker-id", "1").splitlines()) == 1


def leave_a_transaction_open(broker: BrokerProcess, topic: str) -> int:
    """Append one record in a transaction that is never ended; return the producer id."""
    with Wire(broker.address) as wire:
        request = InitProducerIdRequest(transactional_id="left open", transaction_timeout_ms=600_000)
        while (begun := wire.ask(ApiKey.INIT_PRODUCER_ID, 2, request)).error_code:
            pass
        ids = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="left open",
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        wire.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, added)
        record = Record(offset=0, timestamp=0, key=None, value=b"value")
        batch = v2.build_batch([record], base_sequence=0, is_transactional=True, **ids)
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        produced = wire.ask(
            ApiKey.PRODUCE,
            9,
            ProduceRequest(transactional_id="left open", acks=-1, timeout_ms=5000, topic_data=[data]),
        )
        assert produced.responses[0].partition_responses[0].error_code == 0
    return int(begun.producer_id)
