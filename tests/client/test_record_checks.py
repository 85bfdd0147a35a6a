"""Invalid records are refused by the call; the partition and the producer continue."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from gregor.client import Consumer, Producer
from gregor.client.errors import InvalidTopicError
from gregor.client.producer.appending_cy import record_size_bound
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Header, Record
from tests.broker_process import BrokerProcess
from tests.client.topics import new_topic
from tests.waiting import PATIENCE_S

WRONG_RECORDS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"value": "text"}, TypeError, "value must be bytes or None, not str"),
    ({"value": bytearray(b"v")}, TypeError, "value must be bytes or None, not bytearray"),
    ({"value": 7}, TypeError, "value must be bytes"),
    ({"key": "text"}, TypeError, "key must be bytes or None, not str"),
    ({"headers": [("name", "text")]}, TypeError, "header's value must be bytes or None, not str"),
    ({"headers": [(7, b"v")]}, TypeError, "header's name must be str or bytes, not int"),
    ({"headers": [("name",)]}, TypeError, "a \\(name, value\\) pair"),
    ({"headers": ["ab"]}, TypeError, "a \\(name, value\\) pair"),
    ({"headers": {"name": b"v"}}, TypeError, "a sequence of"),
    ({"headers": (pair for pair in [("name", b"v")])}, TypeError, "a sequence of"),
    ({"headers": [("\ud800", b"v")]}, ValueError, "surrogates"),
    ({"partition": -1}, ValueError, "partition must be from 0"),
    ({"partition": -2}, ValueError, "partition must be from 0"),
    ({"partition": 2**31}, ValueError, "partition must be from 0"),
    ({"partition": "0"}, TypeError, "partition must be int, not str"),
    ({"partition": 0.0}, TypeError, "partition must be int, not float"),
    ({"partition": True}, TypeError, "partition must be int, not bool"),
    ({"timestamp_ms": -1}, ValueError, "timestamp_ms must be from 0"),
    ({"timestamp_ms": 2**63}, ValueError, "timestamp_ms must be from 0"),
    ({"timestamp_ms": 1.5}, TypeError, "timestamp_ms must be int, not float"),
]
WRONG_TOPICS: list[tuple[object, type[Exception]]] = [
    (b"topic", TypeError),
    (7, TypeError),
    (None, TypeError),
    (["topic"], TypeError),
    ("", InvalidTopicError),
    (".", InvalidTopicError),
    ("a b", InvalidTopicError),
    ("\ud800", InvalidTopicError),
    ("x" * 250, InvalidTopicError),
    ("x" * 40_000, InvalidTopicError),
]


async def read(bootstrap: str, topic: str) -> list[bytes | None]:
    seen: list[bytes | None] = []
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        end = (await consumer.end_offsets([(topic, 0)]))[topic, 0]
        with trio.fail_after(PATIENCE_S):
            while (consumer.position(topic, 0) or 0) < end:
                seen += [record.value for record in await consumer.poll(100)]
    return seen


@pytest.mark.parametrize("settings", [{}, {"acks": "1"}, {"transactional_id": "checks"}], ids=str)
@pytest.mark.parametrize("codec", [codec.name.lower() for codec in Codec])
async def test_a_wrong_record_is_refused_and_the_next_ones_go(
    broker_process: BrokerProcess, codec: str, settings: dict[str, Any]
) -> None:
    topic = await new_topic(broker_process.bootstrap)

    async def send_all(producer: Producer) -> None:
        for number, (wrong, error, message) in enumerate(WRONG_RECORDS):
            with pytest.raises(error, match=message):
                await producer.send(topic, **{"value": b"v", **wrong})
            delivery = await producer.send(topic, b"%d" % number)
            if number % 3 == 0:
                # The next wrong record then comes to a partition without an open batch.
                with trio.fail_after(PATIENCE_S):
                    await delivery

    async with Producer(broker_process.bootstrap, compression_type=codec, **settings) as producer:
        if "transactional_id" in settings:
            async with producer.transaction():
                await send_all(producer)
        else:
            await send_all(producer)
        assert producer._memory.used_bytes == 0 or producer._accumulator.incomplete
    assert await read(broker_process.bootstrap, topic) == [b"%d" % n for n in range(len(WRONG_RECORDS))]


@pytest.mark.parametrize(("topic", "error"), WRONG_TOPICS)
async def test_a_wrong_topic_is_refused_and_the_next_ones_go(
    broker_process: BrokerProcess, topic: Any, error: type[Exception]
) -> None:
    good = await new_topic(broker_process.bootstrap)
    raw = v2.build_batch([Record(0, 5, None, b"raw")])
    async with Producer(broker_process.bootstrap) as producer:
        for call in (producer.send(topic, b"v"), producer.send_batch(topic, 0, raw), producer.partitions_for(topic)):
            with pytest.raises(error):
                await call
        assert (await (await producer.send(good, b"v"))).offset == 0


@pytest.mark.parametrize("chosen", [-1, 1, "0", None, 0.5])
async def test_the_partition_chosen_by_a_partitioner_is_checked(broker_process: BrokerProcess, chosen: Any) -> None:
    topic = await new_topic(broker_process.bootstrap)
    choices = iter([chosen, 0])
    async with Producer(broker_process.bootstrap, partitioner_class=lambda *_: next(choices)) as producer:
        with pytest.raises((TypeError, ValueError)):
            await producer.send(topic, b"v")
        assert (await (await producer.send(topic, b"v"))).offset == 0
        assert producer._memory.used_bytes == 0


async def test_headers_of_a_consumers_records_can_be_sent_on_and_split(broker_process: BrokerProcess) -> None:
    topic = await new_topic(broker_process.bootstrap, max_message_bytes="1500")
    headers = (Header("naïve".encode(), b"1"), Header(b"none", None))
    async with Producer(broker_process.bootstrap, linger_ms=60_000) as producer:
        for n in range(30):
            await producer.send(topic, b"%d" % n * 50, headers=headers)
        await producer.flush()
    async with Consumer(broker_process.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        with trio.fail_after(PATIENCE_S):
            record = (await consumer.poll())[0]
    assert record.headers == headers


@pytest.mark.parametrize("headers", [(), [("é" * 20, b"x" * 300)], [(b"n", None)] * 3])
def test_the_record_size_bound_is_not_below_the_encoded_size(headers: list[tuple[str | bytes, bytes | None]]) -> None:
    from gregor.protocol.records.client_records_cy import append_record

    assert record_size_bound(b"k", b"v", headers) >= append_record(bytearray(), 2**40, 2**20, b"k", b"v", headers)


@pytest.mark.parametrize("keeps_producer", [False, True])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1, 2])
async def test_send_batch_refuses_a_batch_with_a_wrong_crc(
    broker_process: BrokerProcess, magic: int, codec: Codec, keeps_producer: bool
) -> None:
    topic = await new_topic(broker_process.bootstrap)
    records = [Record(offset=n, timestamp=5, key=b"k", value=b"value") for n in range(3)]
    good = v2.build_batch(records, codec=codec)
    if magic < 2:
        good = (v0 if magic == 0 else v1).build_message_set(records, codec=codec)
    damaged = bytearray(good)
    damaged[-1] ^= 1
    async with Producer(broker_process.bootstrap) as producer:
        with pytest.raises(BrokerError) as caught:
            await producer.send_batch(topic, 0, damaged, keeps_producer=keeps_producer)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        assert producer._memory.used_bytes == 0
        assert (await (await producer.send_batch(topic, 0, good))).offset == 0


@pytest.mark.parametrize("raw", ["text", None, [b"x"], 5])
async def test_a_batch_of_the_wrong_type_is_refused(broker_process: BrokerProcess, raw: Any) -> None:
    async with Producer(broker_process.bootstrap) as producer:
        with pytest.raises(TypeError, match="a batch must be bytes"):
            await producer.send_batch("t", 0, raw)


def test_an_unknown_code_of_a_later_kafka_is_unknown_server_error() -> None:
    assert ErrorCode(9_999) is ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(ValueError, match="text"):
        ErrorCode("text")  # type: ignore[arg-type]
