"""Repeated kill -9 of a broker during writes: no acknowledged record is lost, altered or duplicated."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.storage.clock import SystemClock
from gregor.storage.disk.read_only_files import ReadOnlyFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log_manager import LogManager
from gregor.storage.recovery.directory_verification import find_partitions, verify_log_directory
from tests.broker.torture_producer import RECORDS_PER_BATCH, TortureProducer
from tests.broker_process import BrokerProcess, running_broker
from tests.storage.payloads import read_all
from tests.waiting import PATIENCE_S
from tests.wire import Wire

pytestmark = pytest.mark.slow

ROUNDS_PER_KILL = 40
"""Average number of rounds; in each, both producers fill their connections and read some answers."""

OVERRIDES = (
    "log.segment.bytes=300000",
    "log.index.interval.bytes=512",
    "log.flush.interval.messages=500",
    "log.retention.check.interval.ms=200",
)
"""Segments roll, flushes and checkpoints happen all the time, so that kills meet all of that."""


@pytest.mark.parametrize("kills", [5, pytest.param(40, marks=pytest.mark.peer)])
def test_acknowledged_records_survive_kills(tmp_path: Path, kills: int) -> None:
    producers = [TortureProducer("plain", is_idempotent=False), TortureProducer("exact", is_idempotent=True)]
    with running_broker(tmp_path, *OVERRIDES) as broker:
        make_topics(broker, producers)
        torture(broker, producers, kills)
    logs = LogManager([str(tmp_path / "logs")], LogConfig(retention_ms=-1), SystemClock())
    logs.open_all()
    try:
        for producer in producers:
            check(logs, producer)
    finally:
        logs.close()
    files = ReadOnlyFiles()
    assert list(verify_log_directory(files, find_partitions(files, str(tmp_path / "logs")))) == []
    acknowledged = sum(len(producer.acknowledged) for producer in producers)
    print(f"\n{kills} kills, {acknowledged * RECORDS_PER_BATCH:,} records acknowledged, 0 lost, altered or doubled")


def make_topics(broker: BrokerProcess, producers: list[TortureProducer]) -> None:
    topics = [CreatableTopic(name=producer.topic, num_partitions=1, replication_factor=1) for producer in producers]
    with Wire(broker.address) as wire:
        response = wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=topics, timeout_ms=9_000))
    assert [topic.error_code for topic in response.topics] == [0] * len(topics)


def torture(broker: BrokerProcess, producers: list[TortureProducer], kills: int) -> None:
    """Write, and kill the broker at random moments, then let it answer all that is under way."""
    chance = random.Random(kills)
    done = 0
    connect(broker, producers)
    while done < kills:
        try:
            for producer in producers:
                producer.fill()
            for _ in range(chance.randrange(6)):
                producer = chance.choice(producers)
                if producer.under_way:
                    producer.receive()
            if not chance.randrange(ROUNDS_PER_KILL):
                # Requests and answers are in flight in both directions.
                broker.kill()
                done += 1
                broker.start_again()
                connect(broker, producers)
        except OSError:
            assert broker.process.poll() is None, broker.output()
            connect(broker, producers)
    settle(broker, producers)


def connect(broker: BrokerProcess, producers: list[TortureProducer]) -> None:
    for producer in producers:
        producer.connect(broker.address)


def settle(broker: BrokerProcess, producers: list[TortureProducer]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            for producer in producers:
                producer.drain()
                producer.close()
        except OSError:
            time.sleep(0.02)
            connect(broker, producers)
        else:
            return
    raise AssertionError(f"the broker never answers:\n{broker.output()}")


def check(logs: LogManager, producer: TortureProducer) -> None:
    """Compare a partition's records with the batches that the broker acknowledged."""
    log = logs.get(producer.topic, 0)
    assert log is not None
    held = {record.offset: record.value for record in read_all(log)}
    assert sorted(held) == list(range(log.log_end_offset)), "offsets without a hole"
    assert len(producer.acknowledged) > 100
    for number, base_offset in producer.acknowledged.items():
        assert [held[base_offset + index] for index in range(RECORDS_PER_BATCH)] == producer.values(number)
    if producer.is_idempotent:
        expected = [value for number in range(len(producer.acknowledged)) for value in producer.values(number)]
        assert [held[offset] for offset in sorted(held)] == expected, "each record once, in the order of sending"
