"""Options of Kafka 3.9.1's tools under their names: each is an option of ours, or is refused by name."""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.command_line import build_parser
from gregor.command_line.kafka_tools import TOOLS, RefusedOptionError, words_of
from tests.broker_process import BrokerProcess
from tests.command_line.test_client_tools import run

CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-acls": "kafka.admin.AclCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
}
API_VERSIONS = CLASSES["kafka-broker-api-versions"]
TOOL_LIMIT_S = 600


def kafkas(shared: Path, *words: str) -> str:
    done = subprocess.run(
        [shared / "peer" / "kafka39", "tool", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TOOL_LIMIT_S,
        check=False,
    )
    return done.stdout


def options_of(words: tuple[str, ...]) -> set[str]:
    """Return the options of a command of `gregor`, or of a command in it."""
    parser = build_parser(words[:1])
    for word in words:
        (subparsers,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        parser = subparsers.choices[word]
    return set(parser._option_string_actions)


def unknown(tool: str, options: Iterator[str]) -> Iterator[str]:
    """Yield the options that neither the command has nor the tool refuses."""
    known = {*options_of(TOOLS[tool].command), "--version", "--help"}
    for option in options:
        try:
            words = words_of(TOOLS[tool], [option, "value"])
        except RefusedOptionError as refused:
            words = [] if str(refused).startswith(f"{option} is not supported: ") else [f"{option}, refused badly"]
        if not set(filter(lambda word: word.startswith("--"), words)) <= known:
            yield option


@pytest.mark.peer
@pytest.mark.parametrize("tool", CLASSES)
def test_each_option_is_accepted_or_refused_by_name(shared: Path, tool: str) -> None:
    told = kafkas(shared, CLASSES[tool], "--help")
    options = sorted(set(re.findall(r"^ *(--[a-z][a-z.-]*[a-z])", told, re.MULTILINE)))
    assert options, told
    assert list(unknown(tool, iter(options))) == []


@pytest.mark.peer
def test_api_versions_are_printed_as_kafka_prints_them(shared: Path, broker_process: BrokerProcess) -> None:
    """APIs and versions that only one of the two clients knows are left out."""

    def lines(text: str) -> dict[str, str]:
        return {line.partition(":")[0]: line.rstrip(",") for line in text.splitlines() if "UNSUPPORTED" not in line}

    server = ("--bootstrap-server", broker_process.bootstrap)
    theirs, ours = lines(kafkas(shared, API_VERSIONS, *server)), lines(run(None, "api-versions", *server).out)
    assert len(ours) > 50
    newer = ["\tConsumerGroupHeartbeat(68)"]
    assert {name: line for name, line in ours.items() if name in theirs and name not in newer} == {
        name: line for name, line in theirs.items() if name not in newer
    }


def test_options_of_kafkas_tools_are_translated_or_refused() -> None:
    producer, consumer = TOOLS["kafka-console-producer"], TOOLS["kafka-console-consumer"]
    assert words_of(producer, ["--broker-list=h:1", "--max-block-ms", "5", "--topic", "t"]) == [
        "produce", "--bootstrap-server", "h:1", "--producer-property", "max.block.ms=5", "--topic", "t",
    ]  # fmt: skip
    assert words_of(TOOLS["kafka-configs"], ["--force", "--broker-defaults", "--describe"]) == [
        "configs", "--entity-type", "brokers", "--entity-default", "--describe",
    ]  # fmt: skip
    assert words_of(consumer, ["--topic", "t", "--version"]) == ["--version"]
    with pytest.raises(RefusedOptionError, match="--formatter is not supported: it names a Java class"):
        words_of(consumer, ["--formatter=x.Y"])
    with pytest.raises(RefusedOptionError, match="--whitelist needs a value"):
        words_of(consumer, ["--whitelist"])
