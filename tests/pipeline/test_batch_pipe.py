"""Batches in a transaction to one leader, many in flight."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

from collections.abc import Sequence

import trio

from gregor.client import Producer
from gregor.client.errors import ConnectionLostError
from gregor.pipeline.kafka.wire import Wire, WireSettings
from gregor.pipeline.sink.batch_pipe import BATCHES_UNDER_WAY, BYTES_UNDER_WAY, BatchPipe
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records import v2
from gregor.protocol.records.batches import read_batch
from gregor.protocol.records.record import Buffer, Record
from tests.broker_process import BrokerProcess
from tests.pipeline.archive_rows import make_topic
from tests.pipeline.stored import records_of


def batch_of(*values: bytes) -> bytes:
    """Return a batch as a log has it, far into it."""
    return v2.build_batch([Record(100 + n, 1_900_000_000_000, None, v) for n, v in enumerate(values)], base_offset=100)


def write(broker: BrokerProcess, topic: str, *transactions: Sequence[Buffer]) -> list[list[int]]:
    """Append the batches of each transaction; return the offsets."""

    async def send() -> list[list[int]]:
        settings = WireSettings.from_options({"kafka.bootstrap.servers": broker.bootstrap})
        found = []
        async with Producer(broker.bootstrap, transactional_id=topic) as producer:
            with BatchPipe(settings, (topic, 0), topic) as pipe:
                for batches in transactions:
                    async with producer.transaction():
                        identity = await producer.join_transaction(topic, 0)
                        found.append(await trio.to_thread.run_sync(pipe.append, batches, identity))
        return found

    return trio.run(send)


def values_of(broker: BrokerProcess, topic: str) -> list[bytes]:
    """Return the values that readers of committed records get."""
    return [row["value"] for row in records_of(broker, topic, 0)]


def test_batches_arrive_in_order_however_many_or_large(broker_process: BrokerProcess) -> None:
    make_topic(broker_process, "piped", 1)
    small = [batch_of(b"%d" % n, b"and another") for n in range(3 * BATCHES_UNDER_WAY)]
    large = [bytearray(batch_of(b"%d" % n + bytes(900_000))) for n in range(BYTES_UNDER_WAY // 300_000)]
    first, none, second = write(broker_process, "piped", small, [], large)
    assert first == list(range(0, 2 * len(small), 2))
    assert none == []
    markers = 2
    assert second == list(range(2 * len(small) + markers, 2 * len(small) + markers + len(large)))
    values = values_of(broker_process, "piped")
    assert values[: 2 * len(small) : 2] == [b"%d" % n for n in range(len(small))]
    assert [len(value) for value in values[2 * len(small) :]] == [900_000 + len(b"%d" % n) for n in range(len(large))]


def test_a_batch_is_stamped_in_place_only_if_its_buffer_is_writable(broker_process: BrokerProcess) -> None:
    make_topic(broker_process, "stamped", 1)
    fixed, own = batch_of(b"fixed"), bytearray(batch_of(b"own"))
    write(broker_process, "stamped", [fixed, own])
    assert fixed == batch_of(b"fixed")
    changed = read_batch(own)
    assert changed is not None
    assert changed.crc_is_valid
    assert (changed.stored_offset, changed.base_sequence, changed.is_transactional) == (0, 1, True)


def test_a_refused_batch_aborts_the_transaction_and_the_next_one_succeeds(broker_process: BrokerProcess) -> None:
    make_topic(broker_process, "refused", 1)
    damaged = bytearray(batch_of(b"two", b"records"))
    damaged[v2.RECORD_COUNT_AT + 3] = 1
    batches: list[bytes | bytearray] = [
        batch_of(b"before"),
        damaged,
        *[batch_of(b"behind") for _ in range(BATCHES_UNDER_WAY)],
    ]
    with pytest.raises(BrokerError) as refusal:
        write(broker_process, "refused", batches)
    assert refusal.value.code is ErrorCode.INVALID_RECORD
    assert values_of(broker_process, "refused") == []
    assert write(broker_process, "refused", [batch_of(b"anew")])
    assert values_of(broker_process, "refused") == [b"anew"]


def test_a_lost_connection_to_the_leader_is_an_error(
    broker_process: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(broker_process, "cut", 1)

    def hang_up(wire: Wire, *arguments: object, **options: object) -> None:
        wire.close()

    monkeypatch.setattr(Wire, "send_each", hang_up)
    with pytest.raises(ConnectionLostError):
        write(broker_process, "cut", [batch_of(b"lost")])
    assert values_of(broker_process, "cut") == []
