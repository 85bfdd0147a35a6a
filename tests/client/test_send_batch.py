"""`Producer.send_batch`: batches of other producers, in every format, with and without sequence numbers."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
import trio

from gregor.client import Admin, Consumer, Producer
from gregor.client.admin import NewTopic
from gregor.client.producer.raw_batch import produced_again, read_raw
from gregor.client.wire.connection import Connection
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.batches import BatchView, read_batch
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record
from tests.broker_process import BrokerProcess
from tests.client.faulty_proxy import broker_for_proxy, faulty_proxy
from tests.waiting import PATIENCE_S

RECORDS = [Record(offset=n, timestamp=5, key=b"k", value=b"%d" % n) for n in range(3)]
VALUES = [b"0", b"1", b"2"]


@pytest.fixture
def topic() -> str:
    return f"raw-{uuid4().hex[:12]}"


def view_of(raw: bytes) -> BatchView:
    view = read_batch(raw)
    assert view is not None
    return view


async def read(bootstrap: str, topic: str, count: int, **config: object) -> list[bytes | None]:
    async with Consumer(bootstrap, auto_offset_reset="earliest", **config) as consumer:
        consumer.assign([(topic, 0)])
        seen: list[bytes | None] = []
        with trio.fail_after(PATIENCE_S):
            while len(seen) < count:
                seen += [record.value for record in await consumer.poll()]
            seen += [record.value for record in await consumer.poll(100)]
    return seen


@pytest.mark.parametrize(
    ("magic", "codec"),
    [(magic, codec) for magic in (0, 1, 2) for codec in Codec if magic == 2 or codec is not Codec.ZSTD],
)
async def test_every_format_goes_with_its_records_untouched(
    broker_process: BrokerProcess, topic: str, magic: int, codec: Codec
) -> None:
    if magic == 2:
        raw = v2.build_batch(RECORDS, codec=codec, producer_id=9, producer_epoch=3, base_sequence=70)
    else:
        raw = (v0 if magic == 0 else v1).build_message_set(RECORDS, codec=codec)
    async with Producer(broker_process.bootstrap) as producer:
        first, second = await producer.send_batch(topic, 0, raw), await producer.send(topic, b"after", partition=0)
        assert ((await first).offset, (await second).offset) == (0, 3)
    assert await read(broker_process.bootstrap, topic, 4) == [*VALUES, b"after"]


async def test_send_batch_refuses_payloads_that_are_not_one_batch(broker_process: BrokerProcess, topic: str) -> None:
    raw = v2.build_batch(RECORDS)
    control = v2.build_batch([Record(0, 5, b"\0\0\0\1", b"\0" * 6)], is_control=True, producer_id=1)
    mixed = v0.build_message(0, b"k", b"v") + v1.build_message(1, 5, b"k", b"v")
    async with Producer(broker_process.bootstrap) as producer:
        for wrong in (b"", raw[:-1], raw + raw, control, mixed, mixed[:-1]):
            with pytest.raises((ValueError, BrokerError)):
                await producer.send_batch(topic, 0, wrong)
        assert (await (await producer.send_batch(topic, 0, raw))).offset == 0


async def test_a_duplicate_batch_with_kept_sequence_numbers_is_recognised(
    broker_process: BrokerProcess, topic: str
) -> None:
    async with Producer(broker_process.bootstrap) as producer:
        for _ in range(2):
            raw = v2.build_batch(RECORDS, producer_id=77_000, producer_epoch=0, base_sequence=0)
            delivery = await producer.send_batch(topic, 0, raw, keeps_producer=True)
            assert (await delivery).offset == 0
        gap = v2.build_batch(RECORDS, producer_id=77_000, producer_epoch=0, base_sequence=5)
        with pytest.raises(BrokerError) as caught:
            await (await producer.send_batch(topic, 0, gap, keeps_producer=True))
        assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await (await producer.send(topic, b"own", partition=0))).offset == 3


async def test_a_raw_batch_is_sent_in_a_transaction(broker_process: BrokerProcess, topic: str) -> None:
    raw = v2.build_batch(RECORDS, codec=Codec.LZ4, producer_id=9, producer_epoch=3, base_sequence=70)

    async def abort(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send_batch(topic, 0, raw)
            await producer.flush()
            raise ZeroDivisionError

    async with Producer(broker_process.bootstrap, transactional_id=topic) as producer:
        with pytest.raises(ZeroDivisionError):
            await abort(producer)
        async with producer.transaction():
            await producer.send_batch(topic, 0, raw)
    assert await read(broker_process.bootstrap, topic, 3, isolation_level="read_committed") == VALUES
    assert len(await read(broker_process.bootstrap, topic, 6)) == 6


@pytest.fixture(scope="module")
def hidden_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, int]]:
    with broker_for_proxy(tmp_path_factory.mktemp("hidden")) as broker_and_port:
        yield broker_and_port


async def test_cut_produce_responses_lose_duplicate_and_reorder_no_batches(
    hidden_broker: tuple[BrokerProcess, int], topic: str
) -> None:
    """Five batches at a time with numbers of their own, answers cut at changing places, as a mirror sends them."""
    broker, port = hidden_broker
    bootstrap = f"127.0.0.1:{port}"
    sequence = 0
    async with faulty_proxy(broker, port) as proxy:
        async with Producer(bootstrap, retry_backoff_ms=5, reconnect_backoff_ms=5) as producer:
            for round_number in range(10):
                proxy.cut_after_bytes = 3 + 7 * round_number
                deliveries = []
                for _ in range(12):
                    raw = v2.build_batch(
                        [Record(0, 5, None, b"%d" % sequence)],
                        producer_id=88_000,
                        producer_epoch=0,
                        base_sequence=sequence,
                    )
                    deliveries.append(await producer.send_batch(topic, 0, raw, keeps_producer=True))
                    sequence += 1
                with trio.fail_after(PATIENCE_S):
                    for delivery in deliveries:
                        await delivery
        assert proxy.cuts >= 5
        proxy.cut_after_bytes = None
        assert await read(bootstrap, topic, sequence) == [b"%d" % n for n in range(sequence)]


async def test_old_formats_are_not_retried_when_the_outcome_is_unknown(
    hidden_broker: tuple[BrokerProcess, int], topic: str
) -> None:
    broker, port = hidden_broker
    bootstrap = f"127.0.0.1:{port}"
    raw = v1.build_message_set(RECORDS, codec=Codec.NONE)
    async with faulty_proxy(broker, port) as proxy, Producer(bootstrap, retry_backoff_ms=5) as producer:
        await (await producer.send_batch(topic, 0, raw))
        proxy.cut_after_bytes = 3
        with pytest.raises(BrokerError) as caught:
            await (await producer.send_batch(topic, 0, raw))
        assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
        proxy.cut_after_bytes = None
        assert (await (await producer.send_batch(topic, 0, raw))).offset in (3, 6)


async def test_a_broker_without_old_produce_versions_gets_no_old_format(
    broker_process: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Admin(broker_process.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1)])
    negotiate = Connection._negotiate

    async def as_with_kafka_4(connection: Connection) -> None:
        await negotiate(connection)
        connection.versions._offered[0] = (3, 11)  # type: ignore[index]

    monkeypatch.setattr(Connection, "_negotiate", as_with_kafka_4)
    async with Producer(broker_process.bootstrap) as producer:
        with pytest.raises(BrokerError) as caught:
            await (await producer.send_batch(topic, 0, v1.build_message_set(RECORDS)))
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_new_producer_id_and_sequence_change_only_the_batch_header() -> None:
    raw = v2.build_batch(
        RECORDS,
        codec=Codec.ZSTD,
        base_offset=0,
        producer_id=9,
        producer_epoch=3,
        base_sequence=7,
        is_transactional=True,
    )
    again = view_of(produced_again(view_of(raw), producer_id=1, producer_epoch=2, base_sequence=3))
    assert again.crc_is_valid
    assert bytes(again.view)[v2.RECORDS_AT :] == raw[v2.RECORDS_AT :]
    assert (again.producer_id, again.producer_epoch, again.base_sequence) == (1, 2, 3)
    assert not again.is_transactional
    assert read_raw(raw).base_sequence == 7
