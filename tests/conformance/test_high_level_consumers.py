"""The high-level consumers and the tools of Kafka 0.8.2 and 0.9, which need a ZooKeeper, against a broker alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.offset_fetch import OffsetFetchRequest
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from gregor.testing import Broker
from tests.broker_process import GREGOR
from tests.free_ports import free_address
from tests.gateway.kafka_4 import gateway_before_kafka_4
from tests.waiting import PATIENCE_S, wait_until
from tests.wire import Wire

pytestmark = pytest.mark.peer

SOURCES = Path(__file__).parent / "high_level_consumer"
VERSIONS = {"0.8.2.2": "kafka_2.10", "0.9.0.1": "kafka_2.11"}
THROUGH_A_GATEWAY = "0.9.0.1"
"""The version whose tools are tried through a gateway; those of the other are tried with a broker alone."""
BUILD_LIMIT_S = 1800.0
TOOL_LIMIT_S = 300.0
TOPIC, PARTITIONS = "letters", 6
JAVA = ("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass
class OldKafka:
    """The jars of an old Kafka, and the address at which a broker serves ZooKeeper's protocol."""

    version: str
    class_path: str
    zookeeper: str
    port: int
    """The port of Kafka's protocol on this machine."""

    def tool(self, name: str, *words: str) -> str:
        """Run a class of Kafka's; return its output."""
        command = [*JAVA, "-cp", self.class_path, name, "--zookeeper", self.zookeeper, *words]
        run = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_LIMIT_S)
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    @contextmanager
    def consumer(self, group: str, folder: Path, *settings: str) -> Iterator[Member]:
        """Provide a member of a group; it leaves in order at the end, unless it was killed."""
        output = folder / f"{group}-{time.monotonic_ns()}.txt"
        command = [*JAVA, "-cp", self.class_path, "Main", self.zookeeper, group, TOPIC, *settings]
        with output.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT) as process:
            member = Member(process, output)
            try:
                yield member
            finally:
                process.terminate()
                try:
                    process.wait(PATIENCE_S)
                finally:
                    process.kill()


@dataclass
class Member:
    """A running consumer with its output."""

    process: subprocess.Popen[bytes]
    output: Path

    def records(self) -> list[tuple[int, int, str]]:
        """Return the partition, offset and value of each record so far, in the order of arrival."""
        found = re.findall(r"^(\d+) (\d+) (.*)$", self.output.read_text(), re.MULTILINE)
        return [(int(partition), int(offset), value) for partition, offset, value in found]

    def values(self) -> list[str]:
        return [value for _, _, value in self.records()]


@pytest.fixture(scope="module", params=VERSIONS)
def class_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return an old Kafka's version, and the class path of its jars and the test's program."""
    if shutil.which("mvn") is None or shutil.which("javac") is None:
        pytest.skip("Maven and a JDK are needed for the consumers of Kafka 0.8 and 0.9")
    version = str(request.param)
    folder = tmp_path_factory.mktemp(f"kafka-{version}")
    jars, classes = folder / "jars", folder / "classes"
    wanted = [f"-Dkafka.artifact={VERSIONS[version]}", f"-Dkafka.version={version}", f"-DoutputDirectory={jars}"]
    fetch = ["mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), "dependency:copy-dependencies", *wanted]
    fetched = subprocess.run(fetch, capture_output=True, text=True, timeout=BUILD_LIMIT_S)
    if fetched.returncode:
        pytest.skip(f"the jars of Kafka {version} cannot be fetched: {fetched.stdout[-300:]}")
    source = SOURCES / "Main.java"
    compile_ = ["javac", "-nowarn", "-proc:none", "-d", str(classes), "-cp", f"{jars}/*", str(source)]
    subprocess.run(compile_, check=True, capture_output=True, timeout=BUILD_LIMIT_S)
    return version, f"{classes}{os.pathsep}{jars}/*"


@pytest.fixture
def kafka(class_path: tuple[str, str]) -> Iterator[OldKafka]:
    """Provide a broker that serves ZooKeeper's protocol, with an old Kafka's jars."""
    version, path = class_path
    host, port = free_address()
    settings = {"gregor.zookeeper.listeners": f"zookeeper://{host}:{port}"}
    with Broker(topics=[f"{TOPIC}:{PARTITIONS}"], settings=settings) as broker:
        yield OldKafka(version, path, f"{host}:{port}", broker.port)


@pytest.fixture
def before_tools(class_path: tuple[str, str], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[OldKafka]:
    """Provide a broker alone to the tools of 0.8.2, and a gateway before a broker like Kafka 4 to those of 0.9."""
    version, path = class_path
    if version != THROUGH_A_GATEWAY:
        yield request.getfixturevalue("kafka")
        return
    host, port = free_address()
    settings = {"gregor.zookeeper.listeners": f"zookeeper://{host}:{port}", "gregor.gateway.metadata.refresh.ms": "200"}
    with gateway_before_kafka_4(tmp_path / "upstream", settings) as pair:
        with Wire(pair.upstream_address) as upstream:
            topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
            upstream.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic], timeout_ms=10000))
        yield OldKafka(version, path, f"{host}:{port}", pair.address[1])


@pytest.fixture
def wire(kafka: OldKafka) -> Iterator[Wire]:
    with Wire(("127.0.0.1", kafka.port)) as connection:
        yield connection


def produce(wire: Wire, values: list[str]) -> None:
    """Produce one batch to each partition, with the values distributed in turn."""
    for partition in range(PARTITIONS):
        own = values[partition::PARTITIONS]
        records = [Record(offset, 1_700_000_000_000, None, value.encode()) for offset, value in enumerate(own)]
        if not records:
            continue
        data = PartitionProduceData(index=partition, records=v2.build_batch(records))
        request = ProduceRequest(
            acks=1, timeout_ms=5000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
        )
        answer = wire.ask(ApiKey.PRODUCE, 7, request)
        assert answer.responses[0].partition_responses[0].error_code == 0


def committed(wire: Wire, group: str) -> dict[int, int]:
    answer = wire.ask(ApiKey.OFFSET_FETCH, 2, OffsetFetchRequest(group_id=group, topics=None))
    return {
        partition.partition_index: partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
    }


def owners(kazoo: KazooClient, group: str) -> Counter[str]:
    """Return the number of partitions that each member owns; none in the middle of a rebalance."""
    folder = f"/consumers/{group}/owners/{TOPIC}"
    try:
        return Counter(kazoo.get(f"{folder}/{partition}")[0].decode() for partition in kazoo.get_children(folder))
    except NoNodeError:
        return Counter()


@contextmanager
def connected(zookeeper: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts=zookeeper)
    client.start(PATIENCE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_three_members_share_a_topic_and_lose_nothing_when_one_is_killed(
    kafka: OldKafka, wire: Wire, tmp_path: Path, storage: str
) -> None:
    group, setting = "three", f"offsets.storage={storage}"
    first, second, third = ([f"{part}-{number}" for number in range(600)] for part in "abc")
    produce(wire, first)

    def shares(kazoo: KazooClient) -> Callable[[int], bool]:
        def evenly(members: int) -> bool:
            found = sorted(owners(kazoo, group).values())
            return found == [PARTITIONS // members] * members

        return evenly

    with (
        connected(kafka.zookeeper) as kazoo,
        kafka.consumer(group, tmp_path, setting) as one,
        kafka.consumer(group, tmp_path, setting) as two,
    ):
        evenly = shares(kazoo)
        with kafka.consumer(group, tmp_path, setting) as three:
            members = [one, two, three]
            wait_until(lambda: evenly(3))
            produce(wire, second)
            wait_until(lambda: set(second) <= {value for member in members for value in member.values()})
            assert three.records()
            produce(wire, third[:300])
            three.process.kill()
        wait_until(lambda: evenly(2))
        produce(wire, third[300:])
        wait_until(lambda: {*first, *second, *third} <= {value for member in members for value in member.values()})
        ends = dict.fromkeys(range(PARTITIONS), 300)
        wait_until(lambda: committed(wire, group) == ends)
    with connected(kafka.zookeeper) as kazoo:
        wait_until(lambda: kazoo.get_children(f"/consumers/{group}/ids") == [])
        assert owners(kazoo, group) == Counter()


def test_old_and_new_consumers_continue_at_the_committed_offsets_of_each_other(
    kafka: OldKafka, wire: Wire, tmp_path: Path
) -> None:
    group = "moving"
    parts = [[f"{part}-{number}" for number in range(60)] for part in "abcd"]

    def consume(expected: int) -> list[str]:
        command = ["consume", "--bootstrap-server", f"127.0.0.1:{kafka.port}", "--topic", TOPIC, "--group", group]
        run = subprocess.run(
            [sys.executable, *GREGOR, *command, "--max-messages", str(expected)],
            capture_output=True,
            text=True,
            timeout=TOOL_LIMIT_S,
        )
        assert run.returncode == 0, run.stderr
        return sorted(run.stdout.split())

    def consume_as_of_old(expected: list[str]) -> None:
        with kafka.consumer(group, tmp_path) as member:
            wait_until(lambda: len(member.values()) >= len(expected))
        assert sorted(member.values()) == sorted(expected)

    produce(wire, parts[0])
    consume_as_of_old(parts[0])
    produce(wire, parts[1])
    assert consume(60) == sorted(parts[1])
    produce(wire, parts[2])
    consume_as_of_old(parts[2])
    produce(wire, parts[3])
    assert consume(60) == sorted(parts[3])
    assert committed(wire, group) == dict.fromkeys(range(PARTITIONS), 40)


def test_old_tools_create_describe_alter_read_check_and_delete(before_tools: OldKafka, tmp_path: Path) -> None:
    kafka, is_gateway = before_tools, before_tools.version == THROUGH_A_GATEWAY
    topics = "kafka.admin.TopicCommand"
    made = kafka.tool(
        topics,
        "--create",
        "--topic",
        "made",
        "--partitions",
        "3",
        "--replication-factor",
        "1",
        "--config",
        "retention.ms=100000",
    )
    assert 'Created topic "made"' in made
    assert {"made", TOPIC} <= set(kafka.tool(topics, "--list").split())
    wait_until(lambda: "made" in kafka.tool(topics, "--list").split())
    kafka.tool(topics, "--alter", "--topic", "made", "--partitions", "5")
    described = kafka.tool(topics, "--describe", "--topic", "made")
    # The nodes of a gateway show no configuration, and one broker with the gateway's own id.
    configs, node = ("", 0) if is_gateway else ("retention.ms=100000", 1)
    assert f"PartitionCount:5\tReplicationFactor:1\tConfigs:{configs}" in described
    assert f"Partition: 4\tLeader: {node}\tReplicas: {node}\tIsr: {node}" in described
    assert "marked for deletion" in kafka.tool(topics, "--delete", "--topic", "made")
    assert "made" not in kafka.tool(topics, "--list").split()
    values = [f"v{number}" for number in range(12)]
    with Wire(("127.0.0.1", kafka.port)) as wire:
        produce(wire, values)
    read = ["--topic", TOPIC, "--from-beginning", "--max-messages", "12"]
    assert sorted(kafka.tool("kafka.tools.ConsoleConsumer", *read).split()) == sorted(values)
    with kafka.consumer("checked", tmp_path) as member:
        wait_until(lambda: len(member.values()) == len(values))
    checked = kafka.tool("kafka.tools.ConsumerOffsetChecker", "--group", "checked")
    rows = [line.split() for line in checked.splitlines() if line.startswith("checked")]
    assert [row[1:6] for row in rows] == [[TOPIC, str(index), "2", "2", "0"] for index in range(PARTITIONS)]
