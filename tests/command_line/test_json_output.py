"""Each tool that prints a list or a table prints it as JSON with `--json`: one document, with the same facts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import trio

from gregor.client import Producer
from gregor.command_line import main
from tests.broker_process import BrokerProcess


@dataclass
class Tools:
    """A runner of gregor's tools in this process against one broker."""

    broker: BrokerProcess
    capture: pytest.CaptureFixture[str]

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run one tool; return its exit status, output and errors."""
        server = [] if words[0] == "config" else ["--bootstrap-server", self.broker.bootstrap]
        self.capture.readouterr()
        status = main([*words, *server])
        return status, *self.capture.readouterr()

    def parsed(self, *words: str) -> Any:
        """Run one tool that must succeed, with --json, and return its output."""
        status, out, err = self.run(*words, "--json")
        assert status == 0, err
        return json.loads(out)


@pytest.fixture
def tools(broker_process: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> Tools:
    return Tools(broker_process, capfd)


@pytest.fixture
def topic(tools: Tools) -> str:
    """Return a topic with three records, which the group of the same name has read."""
    name = f"json-{uuid4().hex}"
    assert tools.run("topics", "--create", "--topic", name, "--config", "retention.ms=1234567")[0] == 0

    async def fill() -> None:
        async with Producer(tools.broker.bootstrap) as producer:
            for value in (b"one", b"two", b"three"):
                await producer.send(name, value)
            await producer.flush()

    trio.run(fill)
    to_the_end = ("--from-beginning", "--max-messages", "3", "--group", name)
    assert tools.run("consume", "--topic", name, *to_the_end)[0] == 0
    return name


def test_topics_are_listed_and_described_as_json(tools: Tools, topic: str) -> None:
    assert topic in tools.parsed("topics", "--list")
    (described,) = tools.parsed("topics", "--describe", "--topic", topic)
    assert described["configs"] == {"retention.ms": "1234567"}
    assert described["partitions"] == [{"partition": 0, "leader": 1, "replicas": [1], "isr": [1]}]


def test_group_commands_print_json(tools: Tools, topic: str) -> None:
    assert {"group": topic, "state": "Empty", "type": "classic"} in tools.parsed("groups", "--list")
    (described,) = tools.parsed("groups", "--describe", "--group", topic)
    assert (described["state"], described["members"]) == ("Empty", [])
    (offset,) = described["offsets"]
    assert (offset["topic"], offset["current_offset"], offset["log_end_offset"], offset["lag"]) == (topic, 3, 3, 0)
    to_one = ("groups", "--reset-offsets", "--group", topic, "--topic", topic, "--to-offset", "1", "--execute")
    assert tools.parsed(*to_one) == [{"group": topic, "topic": topic, "partition": 0, "new_offset": 1}]
    assert tools.parsed("groups", "--delete", "--group", topic) == {"deleted": [topic]}


def test_configs_are_described_as_json(tools: Tools, topic: str) -> None:
    (described,) = tools.parsed("configs", "--describe", "--topic", topic)
    assert [(entry["name"], entry["value"], entry["source"]) for entry in described["configs"]] == [
        ("retention.ms", "1234567", "DYNAMIC_TOPIC_CONFIG")
    ]
    assert len(tools.parsed("configs", "--describe", "--entity-type", "topics")) >= 1
    assert tools.parsed("configs", "--describe", "--entity-type", "users") == []


def test_clients_are_listed_as_json(tools: Tools, topic: str) -> None:
    client = next(c for c in tools.parsed("clients") if c["client_id"] == "gregor-consume")
    assert not client["refused_by_kafka_4"]
    assert {"api", "version", "requests"} == set(client["api_versions"][0])
    assert tools.parsed("clients", "--refused") == []


def test_features_transactions_and_reassignments_are_printed_as_json(tools: Tools, topic: str) -> None:
    assert "metadata.version" in [found["feature"] for found in tools.parsed("features", "describe")]
    assert isinstance(tools.parsed("transactions", "list"), list)
    assert tools.parsed("transactions", "find-hanging", "--topic", topic) == []
    (producer,) = tools.parsed("transactions", "describe-producers", "--topic", topic, "--partition", "0")
    assert (producer["lastsequence"], producer["currenttransactionstartoffset"]) == (2, None)
    assert tools.parsed("reassign", "--list") == []


def test_a_reassignment_plan_is_generated_executed_verified_and_cancelled(
    tools: Tools, topic: str, tmp_path: Path
) -> None:
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generate = ("reassign", "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1")
    proposed = tools.parsed(*generate)["proposed"]
    assert [entry["replicas"] for entry in proposed["partitions"]] == [[1]]
    plan.write_text(json.dumps(proposed))
    by_plan = ("--reassignment-json-file", str(plan))
    assert tools.parsed("reassign", "--execute", *by_plan)["started"] == [f"{topic}-0"]
    assert tools.parsed("reassign", "--verify", *by_plan)[0]["state"] == "complete"
    assert tools.parsed("reassign", "--cancel", *by_plan) == {"cancelled": []}
    plan.write_text('{"partitions": [{"topic": 1}]}')
    assert tools.run("reassign", "--execute", *by_plan)[0] == 1


def test_throttles_of_a_reassignment_are_set_and_cleared(tools: Tools, topic: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}))
    by_plan = ("--reassignment-json-file", str(plan))

    def throttles() -> dict[str, str]:
        described = [
            *tools.parsed("configs", "--describe", "--topic", topic),
            *tools.parsed("configs", "--describe", "--broker", "1"),
        ]
        return {
            entry["name"]: entry["value"]
            for found in described
            for entry in found["configs"]
            if "throttled" in entry["name"]
        }

    status, out, _ = tools.run("reassign", "--execute", *by_plan, "--throttle", "1000000")
    assert (status, "The inter-broker throttle limit was set to 1000000 B/s" in out) == (0, True)
    rates = {f"{side}.replication.throttled.rate": "1000000" for side in ("leader", "follower")}
    assert throttles() == {**rates, "leader.replication.throttled.replicas": "0:1"}
    status, out, _ = tools.run("reassign", "--verify", *by_plan, "--preserve-throttles")
    assert (status, "Clearing" in out, len(throttles())) == (0, False, 3)
    status, out, _ = tools.run("reassign", "--verify", *by_plan)
    assert (status, out.splitlines()[-2:], throttles()) == (
        0,
        ["Clearing broker-level throttles on broker 1", f"Clearing topic-level throttles on topic {topic}"],
        {},
    )
    for wrong in (
        ("--verify", "--throttle", "1"),
        ("--execute", "--throttle", "-1"),
        ("--execute", "--preserve-throttles"),
    ):
        assert tools.run("reassign", *wrong, *by_plan)[0] == 1


def test_api_versions_are_printed_as_json(tools: Tools) -> None:
    (broker,) = tools.parsed("api-versions")
    assert (broker["id"], broker["port"], broker["rack"]) == (1, tools.broker.address[1], None)
    by_name = {api["api"]: api for api in broker["apis"]}
    assert by_name["Produce"] == {"api": "Produce", "api_key": 0, "min_version": 0, "max_version": 11}


def test_findings_of_the_doctor_are_printed_as_json(tools: Tools) -> None:
    findings = tools.parsed("doctor", "--client-version", "0.8")
    subjects = {finding["subject"] for finding in findings}
    assert {"limits", "disk", "DNS", "ports", "broker", "advertised", "topics", "client 0.8"} <= subjects
    texts = " ".join(finding["text"] for finding in findings)
    assert "this broker serves all its requests" in texts
    assert "Kafka 4 refuses" in texts


def test_config_needs_no_broker(tools: Tools) -> None:
    (key,) = tools.parsed("config", "gregor.console.read.only")
    assert (key["type"], key["default"]) == ("BOOLEAN", "false")


# --- chosen records


def test_consume_prints_the_last_records_or_one_chosen_record(tools: Tools, topic: str) -> None:
    assert tools.run("consume", "--topic", topic, "-n", "2")[1].split() == ["two", "three"]
    assert tools.run("consume", "--topic", topic, "--last", "99")[1].split() == ["one", "two", "three"]
    assert tools.run("consume", "--topic", topic, "--record", "0:1")[1].split() == ["two"]
    for wrong, complaint in (("0:3", "no record with offset 3"), ("1:0", "no partition 1"), ("x", "PARTITION:OFFSET")):
        status, _, err = tools.run("consume", "--topic", topic, "--record", wrong)
        assert (status, complaint in err) == (1, True)
    assert tools.run("consume", "--topic", topic, "-n", "1", "--group", "g")[0] == 1
