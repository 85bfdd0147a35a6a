"""Three brokers, killed, stopped and let go on at random under acks=all: nothing acknowledged is lost.

An idempotent producer's records are in the log once each and in the order of sending; a producer of old formats has
all that was acknowledged. In the end the three copies of every partition are the same, byte for byte.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from gregor.storage.clock import SystemClock
from gregor.storage.directory_verification import find_partitions, verify_log_directory
from gregor.storage.log_config import LogConfig
from gregor.storage.log_manager import LogManager
from gregor.storage.read_only_files import ReadOnlyFiles
from tests.broker.torture_producer import RECORDS_PER_BATCH, TortureProducer
from tests.broker_process import wait_until_it_answers
from tests.cluster_of_processes import CONTROLLER, ClusterOfProcesses, running_cluster, until
from tests.storage.payloads import read_all

OVERRIDES = (
    "broker.session.timeout.ms=1500",
    "broker.heartbeat.interval.ms=200",
    "replica.lag.time.max.ms=2000",
    "replica.high.watermark.checkpoint.interval.ms=300",
    "log.segment.bytes=300000",
    "log.index.interval.bytes=512",
    "offsets.topic.num.partitions=1",
)
ANSWER_LIMIT_S = 4.0
"""A stopped broker does not answer: the producer then asks who leads."""
START_LIMIT_S = 90.0
"""This runs for minutes, beside whatever else the machine has to do."""
TROUBLES = ("kill", "kill", "kill the leader", "stop", "stop the leader", "kill two")


class PersistentProducer(threading.Thread):
    """A `TortureProducer` that finds its leader again and again, and writes until told to finish."""

    def __init__(self, cluster: ClusterOfProcesses, topic: str, *, is_idempotent: bool) -> None:
        super().__init__(name=topic, daemon=True)
        self.producer = TortureProducer(topic, is_idempotent=is_idempotent)
        self.longest_silence_s = 0.0
        self.failure: BaseException | None = None
        self._cluster = cluster
        self._finishing = threading.Event()

    def run(self) -> None:
        producer = self.producer
        answered_at = time.monotonic()
        try:
            if producer.is_idempotent:
                producer.connect(self._cluster.brokers[CONTROLLER].address)
                producer.close()
            while not self._finishing.is_set() or producer.under_way:
                try:
                    if not producer.is_connected:
                        producer.connect(self._leader(), timeout_s=ANSWER_LIMIT_S)
                    if not self._finishing.is_set():
                        producer.fill()
                    producer.receive()
                    now = time.monotonic()
                    self.longest_silence_s = max(self.longest_silence_s, now - answered_at)
                    answered_at = now
                except OSError:
                    producer.close()
                    time.sleep(0.02)
        except BaseException as failure:
            self.failure = failure
        finally:
            producer.close()

    def _leader(self) -> tuple[str, int]:
        """Where the partition is led, as some broker sees it. Raises OSError."""
        for node_id, broker in self._cluster.brokers.items():
            try:
                leader = self._cluster.leaders(node_id, self.producer.topic)[0]
            except (OSError, IndexError):
                continue
            if leader in self._cluster.brokers and broker.process.poll() is None:
                return self._cluster.brokers[leader].address
        raise ConnectionError("nobody leads")

    def finish(self, limit_s: float) -> None:
        """Write no more, and wait until all is acknowledged."""
        self._finishing.set()
        self.join(limit_s)
        if self.failure is not None:
            raise self.failure
        assert not self.is_alive(), f"{self.producer.topic} is not acknowledged {limit_s} s after the last trouble"


@pytest.mark.parametrize("rounds", [2, pytest.param(None, marks=pytest.mark.peer)])
def test_what_is_acknowledged_survives_its_leaders(
    tmp_path: Path, rounds: int | None, pytestconfig: pytest.Config
) -> None:
    count = pytestconfig.getoption("--failover-rounds") if rounds is None else rounds
    dice = random.Random(pytestconfig.getoption("--failover-seed"))
    with running_cluster(tmp_path, 3, *OVERRIDES) as cluster:
        make_topics(cluster, ["exact", "exact-too", "old"])
        producers = [
            PersistentProducer(cluster, topic, is_idempotent=topic != "old") for topic in ("exact", "exact-too", "old")
        ]
        for producer in producers:
            producer.start()
        for number in range(count):
            make_trouble(cluster, dice, number)
            for producer in producers:
                assert producer.failure is None, producer.failure
        for producer in producers:
            producer.finish(120)
        wait_until_all_are_in_sync(cluster, producers)
    for producer in producers:
        check_copies(tmp_path, producer.producer.topic)
        check_records(tmp_path, producer.producer)
    acknowledged = sum(len(producer.producer.acknowledged) for producer in producers)
    silence_s = max(producer.longest_silence_s for producer in producers)
    print(
        f"\n{count} rounds, {acknowledged * RECORDS_PER_BATCH:,} records acknowledged, 0 lost, doubled or reordered; "
        f"longest silence {silence_s:.1f} s"
    )


def make_topics(cluster: ClusterOfProcesses, names: list[str]) -> None:
    configs = [CreatableTopicConfig(name="min.insync.replicas", value="2")]
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=3, configs=configs) for name in names]
    with cluster.wire(CONTROLLER) as wire:
        response = wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=topics, timeout_ms=9_000))
    assert [topic.error_code for topic in response.topics] == [0] * len(topics)


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


def wait_until_all_are_in_sync(cluster: ClusterOfProcesses, producers: list[PersistentProducer]) -> None:
    for producer in producers:
        topic = producer.producer.topic
        until(lambda topic=topic: len(cluster.metadata(CONTROLLER, topic).topics[0].partitions[0].isr_nodes) == 3)  # type: ignore[misc]


def partition_bytes(directory: Path, node_id: int, topic: str) -> bytes:
    segments = sorted((directory / f"broker-{node_id}" / "logs" / f"{topic}-0").glob("*.log"))
    return b"".join(segment.read_bytes() for segment in segments)


def check_copies(directory: Path, topic: str) -> None:
    """The copies must be equal, and the logs in order."""
    first, *others = (partition_bytes(directory, node_id, topic) for node_id in (1, 2, 3))
    assert first
    assert [other == first for other in others] == [True, True], f"the copies of {topic} differ"
    files = ReadOnlyFiles()
    for node_id in (1, 2, 3):
        home = str(directory / f"broker-{node_id}" / "logs")
        assert list(verify_log_directory(files, find_partitions(files, home))) == []


def check_records(directory: Path, producer: TortureProducer) -> None:
    """Hold one copy against what was acknowledged."""
    logs = LogManager([str(directory / "broker-2" / "logs")], LogConfig(retention_ms=-1), SystemClock(), node_id=2)
    logs.open_all()
    try:
        log = logs.get(producer.topic, 0)
        assert log is not None
        held = {record.offset: record.value for record in read_all(log)}
    finally:
        logs.close()
    assert sorted(held) == list(range(len(held))), "offsets without a hole"
    for number, base_offset in producer.acknowledged.items():
        assert [held[base_offset + index] for index in range(RECORDS_PER_BATCH)] == producer.values(number)
    if producer.is_idempotent:
        expected = [value for number in range(len(producer.acknowledged)) for value in producer.values(number)]
        assert [held[offset] for offset in sorted(held)] == expected, "each record once, in the order of sending"
