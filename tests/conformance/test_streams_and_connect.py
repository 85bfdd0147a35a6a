"""Kafka Streams, Kafka Connect and MirrorMaker 2 from Maven Central, of several versions, with their usual settings."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

from gregor.client import Admin, Consumer, Producer
from gregor.client.admin import ResourceType
from gregor.testing import Broker
from tests.conformance.maven_builds import JAVA, built
from tests.free_ports import free_address
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.peer

BAD_REQUEST = 400
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
ONE_REPLICA = {
    f"{topic}.replication.factor": 1
    for topic in ("offset.storage", "config.storage", "status.storage", "checkpoints.topic", "heartbeats.topic")
} | {"offset-syncs.topic.replication.factor": 1}


@contextmanager
def running(version: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a class with a version of Kafka's libraries; end the process with SIGTERM."""
    target = built("streams_and_connect", kafka_version=version)
    program = subprocess.Popen([*JAVA, QUIET, "-cp", f"{target}/classes:{target}/lib/*", *arguments])
    try:
        yield program
    finally:
        program.terminate()
        program.wait(PATIENCE_S)


def properties_file(path: Path, settings: Mapping[str, object]) -> str:
    path.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    return str(path)


async def newest_values(broker: Broker, topic: str, is_enough: Callable[[dict[bytes, int]], bool]) -> None:
    """Read the committed records of a topic of three partitions until the newest value of each key is as wanted."""
    values: dict[bytes, int] = {}
    with trio.fail_after(PATIENCE_S):
        async with Consumer(
            broker.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.assign([(topic, partition) for partition in range(3)])
            while not is_enough(values):
                values |= {record.key or b"": int(record.value or b"") for record in await consumer.poll(1_000)}


@pytest.mark.parametrize(
    ("version", "guarantee"),
    [("2.8.2", "exactly_once"), ("3.9.1", "at_least_once"), ("3.9.1", "exactly_once_v2"), ("4.3.0", "exactly_once_v2")],
)
async def test_kafka_streams_counts_words_although_an_instance_is_killed(
    tmp_path: Path, version: str, guarantee: str
) -> None:
    """The instances use a topic for repartitioning and one for the changes of their stores."""
    lines = [" ".join(Random(number).choices("abcde", k=5)) for number in range(1_000)]
    expected = {word.encode(): count for word, count in Counter(" ".join(lines).split()).items()}
    with Broker(topics=["lines:3", "counts:3"]) as broker:
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "application.id": "words",
            "processing.guarantee": guarantee,
            "commit.interval.ms": 100,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "transaction.timeout.ms": 10_000,
        }
        given = [f"{key}={value}" for key, value in settings.items()]

        with (
            running(version, "app.WordCount", *given, f"state.dir={tmp_path}/1") as first,
            running(version, "app.WordCount", *given, f"state.dir={tmp_path}/2"),
        ):
            async with Producer(broker.bootstrap_servers) as producer:
                for number, line in enumerate(lines):
                    await producer.send("lines", line.encode(), key=b"%d" % number)
                    if number == len(lines) // 2:
                        await producer.flush()
                        await newest_values(broker, "counts", lambda values: values.keys() == expected.keys())
                        first.kill()
            if guarantee == "at_least_once":
                await newest_values(
                    broker, "counts", lambda values: all(values.get(word, 0) >= n for word, n in expected.items())
                )
            else:
                await newest_values(broker, "counts", lambda values: values == expected)


class Worker:
    """The REST interface of a Connect worker."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.listener = f"http://{address[0]}:{address[1]}"

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Return the answer's JSON; retries while the worker starts or rebalances."""
        data = None if body is None else json.dumps(body).encode()
        answers: list[bytes] = []

        def is_answered() -> bool:
            request = urllib.request.Request(
                self.listener + path, data, {"Content-Type": "application/json"}, method=method
            )
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                    answers.append(answer.read())
            except urllib.error.HTTPError as fault:
                if fault.code == BAD_REQUEST:
                    raise
                return False
            except OSError:
                return False
            return True

        wait_until(is_answered)
        return json.loads(answers[-1] or b"null")


@pytest.mark.parametrize("version", ["2.8.2", "3.9.1", "4.3.0"])
def test_kafka_connect_copies_a_file_through_a_topic(tmp_path: Path, version: str) -> None:
    """A distributed worker with its three internal topics, and since 3.3 with exactly-once sources."""
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    lines = [f"line {number}\n" for number in range(1_000)]
    source.write_text("".join(lines))
    worker = Worker(free_address())
    converter = "org.apache.kafka.connect.storage.StringConverter"
    with Broker() as broker:
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "connect",
            "key.converter": converter,
            "value.converter": converter,
            "offset.storage.topic": "connect-offsets",
            "config.storage.topic": "connect-configs",
            "status.storage.topic": "connect-status",
            "offset.flush.interval.ms": 500,
            "listeners": worker.listener,
            **ONE_REPLICA,
        }
        if version != "2.8.2":
            settings |= {"exactly.once.source.support": "enabled", "plugin.discovery": "only_scan"}
        file = properties_file(tmp_path / "worker.properties", settings)
        with running(version, "org.apache.kafka.connect.cli.ConnectDistributed", file):
            reading = {"connector.class": "FileStreamSource", "file": str(source), "topic": "lines"}
            writing = {"connector.class": "FileStreamSink", "file": str(sink), "topics": "lines", "tasks.max": 2}
            worker.ask("PUT", "/connectors/reading/config", reading)
            worker.ask("PUT", "/connectors/writing/config", writing)
            wait_until(lambda: sink.exists() and sorted(sink.read_text().splitlines(True)) == sorted(lines))
            if version != "2.8.2":
                (place,) = worker.ask("GET", "/connectors/reading/offsets")["offsets"]
                assert place["offset"] == {"position": len("".join(lines))}
                worker.ask("PUT", "/connectors/writing/stop")
                worker.ask("DELETE", "/connectors/writing/offsets")
            worker.ask("DELETE", "/connectors/writing")


@pytest.mark.parametrize("version", ["3.9.1"])
async def test_mirror_maker_2_copies_topics_configurations_and_group_offsets(tmp_path: Path, version: str) -> None:
    with Broker(topics=["orders:3:retention.ms=7200000"]) as here, Broker() as there:
        async with Producer(here.bootstrap_servers) as producer:
            for number in range(300):
                await producer.send("orders", b"%d" % number, key=b"k%d" % number, headers=[("h", b"x")])
        async with Consumer(here.bootstrap_servers, group_id="readers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            count = 0
            while count < 300:
                count += len(await consumer.poll())
            await consumer.commit()
        file = properties_file(
            tmp_path / "mm2.properties",
            {
                "clusters": "a, b",
                "a.bootstrap.servers": here.bootstrap_servers,
                "b.bootstrap.servers": there.bootstrap_servers,
                "a->b.enabled": "true",
                "a->b.topics": "orders",
                "replication.factor": 1,
                "b.exactly.once.source.support": "enabled",
                "sync.group.offsets.enabled": "true",
                "sync.group.offsets.interval.seconds": 1,
                "emit.checkpoints.interval.seconds": 1,
                "refresh.groups.interval.seconds": 2,
                "offset.lag.max": 0,
                **ONE_REPLICA,
            },
        )
        with running(version, "org.apache.kafka.connect.mirror.MirrorMaker", file):
            async with Admin(there.bootstrap_servers) as admin:
                with trio.fail_after(PATIENCE_S):
                    while "readers" not in [group.group_id for group in await admin.list_groups()]:  # noqa: ASYNC110
                        await trio.sleep(0.5)
                    # MirrorCheckpointTask translates to the newest offset sync read, so the first offsets may be low.
                    while sum((await admin.group_offsets("readers")).values()) < 300:  # noqa: ASYNC110
                        await trio.sleep(0.5)
                assert {"a.orders", "heartbeats", "a.checkpoints.internal"} <= set(await admin.list_topics())
                (copied,) = await admin.describe_configs(ResourceType.TOPIC, "a.orders", ["retention.ms"])
                assert copied.value == "7200000"
                offsets = await admin.group_offsets("readers")
        async with Consumer(there.bootstrap_servers, isolation_level="read_committed") as consumer:
            consumer.assign([("a.orders", partition) for partition in range(3)])
            await consumer.seek_to_beginning()
            with trio.fail_after(PATIENCE_S):
                values: list[bytes | None] = []
                while len(values) < 300:
                    values += [record.value for record in await consumer.poll()]
        assert Counter(values) == Counter(b"%d" % number for number in range(300))
        assert sum(offsets.values()) == 300, "all records were read at the source"
