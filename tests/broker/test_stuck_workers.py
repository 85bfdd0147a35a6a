"""A worker thread that never ends keeps neither the broker from stopping nor other clients from being served."""

from __future__ import annotations

import random
import time
from pathlib import Path

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.metadata import MetadataRequest
from gregor.protocol.messages.produce import ProduceRequest
from gregor.protocol.records import v2
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record
from tests.broker.api.log_requests import fetch, produce
from tests.broker_process import GREGOR, BrokerProcess, start_broker
from tests.waiting import PATIENCE_S
from tests.wire import Wire, produce_once_there_is_a_leader

STUCK_BROKER = (str(Path(__file__).with_name("stuck_broker.py")),)
STUCK = "a worker thread is stuck"


def compressed(record_bytes: int) -> ProduceRequest:
    value = random.Random(1).randbytes(record_bytes)
    return produce(v2.build_batch([Record(0, 1_700_000_000_000, None, value)], codec=Codec.GZIP), acks=1)


def wait_until_stuck(broker: BrokerProcess, threads: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while broker.output().count(STUCK) < threads:
        assert time.monotonic() < deadline, broker.output()
        time.sleep(0.05)


def test_sigterm_ends_a_broker_whose_workers_are_stuck(tmp_path: Path) -> None:
    broker = start_broker(tmp_path, program=GREGOR)
    with Wire(broker.address) as wire:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        assert produce_once_there_is_a_leader(wire, compressed(50_000)) == ErrorCode.NONE
    assert broker.stop() == 0
    broker = start_broker(tmp_path, program=STUCK_BROKER)
    try:
        with Wire(broker.address) as producer, Wire(broker.address) as consumer, Wire(broker.address) as other:
            producer.send(ApiKey.PRODUCE, 8, compressed(100_000))
            consumer.send(ApiKey.FETCH, 3, fetch((0, 0), max_bytes=1 << 20))
            wait_until_stuck(broker, threads=2)
            metadata = other.ask(ApiKey.METADATA, 1, MetadataRequest(topics=None))
            assert [topic.name for topic in metadata.topics] == ["t"]
            assert broker.stop() == 0, broker.output()
    finally:
        if broker.process.poll() is None:
            broker.kill()
