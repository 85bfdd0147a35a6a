"""Kafka's Java clients 3.9.1 against a broker with faults: set by Kafka's own tool, survived by Kafka's producer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.broker_process import BrokerProcess, running_broker
from tests.wire import Wire

pytestmark = pytest.mark.peer

CONFIGS = "kafka.admin.ConfigCommand"
PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
LATEST = -1
RECORDS = 2000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Provide a broker that may be given faults."""
    with running_broker(tmp_path, "gregor.fault.injection.enable=true") as broker:
        yield broker


def run_tool(shared: Path, broker: BrokerProcess, tool: str, *arguments: str) -> str:
    """Run one of Kafka's tools without error; return its output."""
    command = [str(shared / "peer" / "kafka39"), "tool", tool, "--bootstrap-server", broker.bootstrap, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def set_rules(shared: Path, broker: BrokerProcess, **rules: str) -> None:
    settings = ",".join(f"gregor.fault.rule.{name}=[{text}]" for name, text in rules.items())
    run_tool(
        shared, broker, CONFIGS, "--alter", "--entity-type", "brokers", "--entity-default", "--add-config", settings
    )


def produced(shared: Path, broker: BrokerProcess, topic: str, tmp_path: Path) -> tuple[list[str], int]:
    """Return the acknowledged values of Kafka's verifiable producer, and the end of the topic's log."""
    settings = tmp_path / "producer.properties"
    settings.write_text(
        "enable.idempotence=true\nretries=2147483647\nlinger.ms=0\nbatch.size=1000\nretry.backoff.ms=5\n"
    )
    lines = run_tool(
        shared, broker, PRODUCER, "--topic", topic, "--max-messages", str(RECORDS), "--producer.config", str(settings)
    ).splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    values = [event["value"] for event in events if event["name"] == "producer_send_success"]
    with Wire(broker.address) as wire:
        partition = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
        end_offset = wire.ask(ApiKey.LIST_OFFSETS, 5, request).topics[0].partitions[0].offset
    return values, end_offset


def strikes(broker: BrokerProcess, shared: Path, *names: str) -> dict[str, int]:
    """Return how often each rule was applied, from the line that the broker logs when the rule ends."""
    keys = ",".join(f"gregor.fault.rule.{name}" for name in names)
    run_tool(
        shared, broker, CONFIGS, "--alter", "--entity-type", "brokers", "--entity-default", "--delete-config", keys
    )
    told = {}
    for line in broker.output().splitlines():
        if " has ended after " in line:
            words = line.split("fault rule ")[1].split()
            told[words[0]] = int(words[4])
    return told


def test_delayed_produce_responses_lose_and_duplicate_no_records(
    shared: Path, broker: BrokerProcess, tmp_path: Path
) -> None:
    set_rules(shared, broker, slow="api=Produce topic=late delay=20ms")
    values, end_offset = produced(shared, broker, "late", tmp_path)
    assert sorted(values, key=int) == [str(number) for number in range(RECORDS)]
    assert end_offset == RECORDS
    assert strikes(broker, shared, "slow")["slow"] > 10


def test_lost_acknowledgements_lose_and_duplicate_no_records(
    shared: Path, broker: BrokerProcess, tmp_path: Path
) -> None:
    set_rules(
        shared,
        broker,
        lost="api=Produce disconnect at=answer every=7",
        moved="api=Produce error=NOT_LEADER_OR_FOLLOWER every=11",
        cut="api=Produce,Metadata truncate=7 every=13",
    )
    values, end_offset = produced(shared, broker, "lost", tmp_path)
    assert sorted(values, key=int) == [str(number) for number in range(RECORDS)]
    assert end_offset == RECORDS
    struck = strikes(broker, shared, "lost", "moved", "cut")
    assert min(struck.values()) > 0
