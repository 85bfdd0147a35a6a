"""`send` up to the batch that takes the record, compiled and not."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import trio

from gregor.client.config import ProducerConfig
from gregor.client.errors import RecordTooLargeError
from gregor.client.producer import batch_cy as batch_module
from gregor.client.producer import sending_cy as in_use
from gregor.client.producer.accumulator_cy import Accumulator
from gregor.client.producer.buffer_memory import BufferMemory
from gregor.client.producer.compression_estimator import CompressionRatioEstimator
from gregor.client.producer.partitioner import partition_for_key
from tests.conftest import pure_twin

PURE = pure_twin(Path(batch_module.__file__).with_name("sending_cy.py"))
BUILDS = pytest.mark.parametrize("build", [in_use, PURE], ids=["in use", "pure"])
NOW_MS = 1_700_000_000_000


def producer_of(build: ModuleType, **settings: Any) -> Any:
    """Return a producer without a sender; `calls` has the names of the steps that `send` has left to it."""
    config = ProducerConfig.from_properties({"batch_size": 1_000, "linger_ms": 5, **settings})
    memory = BufferMemory(config.buffer_memory)
    accumulator = Accumulator(config, CompressionRatioEstimator(), memory, Random(1))
    accumulator.update_topic("t", [0, 0, 0])

    class Sending(build.SendingProducer):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            metadata = SimpleNamespace(use=lambda topic, now: self.calls.append("use"))
            super().__init__(config, lambda: NOW_MS, memory, accumulator, metadata, None)
            self.calls: list[str] = []
            self.queues = accumulator.topics["t"].queues
            self._is_open = True

        def _check_open(self) -> None:
            self.calls.append("check")

        async def _yield(self) -> None:
            self._sends_since_yield = 0
            self.calls.append("yield")

        def _partition_for(self, queues: object, key: bytes | None, value: bytes | None) -> int:
            return partition_for_key(key or b"", 3)

        async def _admit(self, topic: str, partition: int | None, size_bytes: int) -> Any:
            self.calls.append("admit")
            assert memory.try_reserve(size_bytes)
            return accumulator.topics["t"]

        def _note_batch(self, leader: int | None, *, is_filled: bool) -> None:
            self.calls.append("filled" if is_filled else "begun")

    return Sending()


@BUILDS
async def test_records_that_fit_an_open_batch_take_the_fast_path(build: ModuleType) -> None:
    producer = producer_of(build)
    first = await producer.send("t", b"v", partition=1)
    assert producer.calls == ["use", "begun"]
    for n in range(5):
        again = await producer.send("t", b"v", partition=1, timestamp_ms=n)
        assert (again.topic, again.partition, again.timestamp) == ("t", 1, n)
    assert producer.calls == ["use", "begun"]
    assert first.timestamp == NOW_MS
    await producer.send("t", bytes(990), partition=1)
    assert producer.calls == ["use", "begun", "use", "filled"]
    assert [batch.record_count for batch in producer.queues[1].batches] == [6, 1]
    await producer.send("unknown", b"v")
    assert producer.calls[4] == "admit"
    assert (await producer.send("t", b"v", key=b"key")).partition == partition_for_key(b"key", 3)
    assert producer._memory.used_bytes == sum(
        batch.reserved_bytes for queue in producer.queues for batch in queue.batches
    )


@BUILDS
async def test_invalid_records_are_refused_and_reserve_no_memory(build: ModuleType) -> None:
    producer = producer_of(build, max_request_size=2_000)
    for wrong in ("text", 7, bytearray(b"v")):
        with pytest.raises(TypeError):
            await producer.send("t", wrong)
        with pytest.raises(TypeError):
            await producer.send("t", b"v", key=wrong)
    with pytest.raises(ValueError, match="partition"):
        await producer.send("t", b"v", partition=-1)
    with pytest.raises(RecordTooLargeError):
        await producer.send("t", bytes(2_000))
    assert producer._memory.used_bytes == 0
    assert producer.calls == []


@BUILDS
async def test_a_cancelled_send_has_sent_nothing(build: ModuleType) -> None:
    producer = producer_of(build)
    await producer.send("t", b"v", partition=0)
    with trio.CancelScope() as scope:
        scope.cancel()
        await producer.send("t", b"v", partition=0)
    assert scope.cancelled_caught
    assert producer.queues[0].open_batch.record_count == 1


@BUILDS
async def test_other_tasks_run_after_many_records(build: ModuleType) -> None:
    producer = producer_of(build, batch_size=1_000_000)
    for _ in range(build.RECORDS_BETWEEN_YIELDS):
        await producer.send("t", b"v", partition=0)
    assert "yield" not in producer.calls
    await producer.send("t", b"v", partition=0)
    assert producer.calls[-1] == "yield"
