"""Checks of transactions after the fail-over torture, while the brokers run."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from gregor.client import Admin, Consumer
from tests.broker.replicas.replication.failover_transactions import (
    COPIES,
    GROUP,
    LEDGER,
    PARTITIONS,
    LibrdkafkaWriter,
    Outcome,
    Place,
    Writer,
    reader,
)
from tests.waiting import PATIENCE_S

AT_REST = {"Empty", "CompleteCommit", "CompleteAbort"}


async def check_transactions(bootstrap: str, writers: Iterable[Writer | LibrdkafkaWriter]) -> int:
    """Compare the committed records with the producers' outcomes; return the number of records."""
    await check_nothing_hangs(bootstrap)
    ledger = await _committed(bootstrap, LEDGER)
    copies = await _committed(bootstrap, COPIES)
    for writer in writers:
        check_ledger(writer, {partition: [value for _, value in held] for partition, held in ledger.items()})
    for partition, held in ledger.items():
        assert [value for _, value in copies[partition]] == [value for _, value in held], f"copies of {partition}"
    async with Consumer(bootstrap, group_id=GROUP, enable_auto_commit=False) as consumer:
        committed = await consumer.committed(*_places(LEDGER))
    # On a loaded machine a partition may have got no transaction before the failure.
    expected = {(LEDGER, partition): held[-1][0] + 1 for partition, held in ledger.items() if held}
    assert {place: committed.get(place) for place in expected} == expected
    return sum(len(held) for held in ledger.values())


async def check_nothing_hangs(bootstrap: str) -> None:
    """Check that no transaction is open: each last stable offset is the end of its log."""
    async with Admin(bootstrap) as admin:
        with trio.fail_after(PATIENCE_S):
            while not {it.transaction_state for it in await admin.list_transactions()} <= AT_REST:
                await trio.lowlevel.checkpoint()
    async with Consumer(bootstrap) as uncommitted, reader(bootstrap) as committed:
        places = [*_places(LEDGER), *_places(COPIES)]
        for topic in ("__consumer_offsets", "__transaction_state"):
            places += [(topic, partition.index) for partition in await uncommitted.partitions_for(topic)]
        with trio.fail_after(PATIENCE_S):
            while await committed.end_offsets(places) != await uncommitted.end_offsets(places):
                await trio.lowlevel.checkpoint()


async def _committed(bootstrap: str, topic: str) -> dict[int, list[tuple[int, bytes]]]:
    """Return the offset and value of all committed records by partition."""
    found: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(PARTITIONS)}
    async with reader(bootstrap) as consumer:
        consumer.assign(_places(topic))
        ends = await consumer.end_offsets(_places(topic))
        while any(consumer.position(*place) != end for place, end in ends.items()):
            for record in await consumer.poll(timeout_ms=100):
                assert record.value is not None
                found[record.partition].append((record.offset, record.value))
    return found


def check_ledger(writer: Writer | LibrdkafkaWriter, held: dict[int, list[bytes]]) -> None:
    """Check that committed transactions are whole and in order, and that aborted ones are absent."""
    marked = writer.name.encode() + b" "
    own = {partition: [value for value in values if value.startswith(marked)] for partition, values in held.items()}
    there = {value for values in own.values() for value in values}
    expected: dict[int, list[bytes]] = {partition: [] for partition in held}
    for written in writer.transactions:
        is_seen = any(value in there for values in written.values.values() for value in values)
        if written.outcome is Outcome.COMMITTED or (written.outcome is Outcome.UNKNOWN and is_seen):
            for partition, values in written.values.items():
                expected[partition] += values
    for partition, values in expected.items():
        assert own[partition] == values, f"{writer.name} in partition {partition}"


def _places(topic: str) -> list[Place]:
    return [(topic, partition) for partition in range(PARTITIONS)]
