"""The work for each record, compiled and not; failed deliveries keep no objects alive."""

from __future__ import annotations

import gc
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.client.errors import AbandonedError, UnknownTopicError, copied_error
from gregor.client.producer import appending_cy as in_use
from gregor.client.producer import batch_cy as batch_module
from gregor.client.producer.batch_cy import ProducerBatch
from gregor.client.producer.buffer_memory import BufferMemory
from gregor.client.producer.partitioner import StickyPartitioner
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records import v2
from gregor.protocol.records.compression import Codec
from tests.conftest import pure_twin

PURE = pure_twin(Path(batch_module.__file__).with_name("appending_cy.py"))
BUILDS = pytest.mark.parametrize("build", [in_use, PURE], ids=["in use", "pure"])

nullable = st.none() | st.binary(max_size=200)
header_lists = st.lists(st.tuples(st.text(max_size=10), nullable), max_size=3)
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
rows = st.lists(st.tuples(st.integers(0, 2**41), nullable, nullable, header_lists), min_size=1, max_size=20)


class Probe:
    """An object that a frame holds."""


def filled(build: ModuleType, records: list[Row]) -> Any:
    batch = build.OpenBatch(16_384.0, 1.05)
    for timestamp, key, value, headers in records:
        assert batch.append(timestamp, key, value, headers, 100).timestamp == timestamp
    return batch


@given(rows)
def test_compiled_and_pure_builds_encode_the_same_batch(records: list[Row]) -> None:
    one, other = filled(in_use, records), filled(PURE, records)
    for name in in_use.OpenBatch.__slots__:
        assert getattr(one, name) == getattr(other, name)
    assert one.record_count == len(records)
    assert one.room == pytest.approx(16_384 - (len(one.body) - v2.HEADER_SIZE) * 1.05)
    assert one.reserved_bytes == 100 * len(records)


@BUILDS
def test_a_refused_record_leaves_the_batch_unchanged(build: ModuleType) -> None:
    batch = filled(build, [(7, None, b"v", [])])
    body = bytes(batch.body)
    with pytest.raises((TypeError, AttributeError)):
        batch.append(8, None, "text", [(7, b"not a name")], 100)
    assert (batch.body, batch.record_count, batch.reserved_bytes, batch.max_timestamp) == (body, 1, 100, 7)


async def test_errors_of_deliveries_keep_no_frames_alive() -> None:
    batch = ProducerBatch("t", 0, codec=Codec.NONE, ratio=1.0, size_limit=100, created_at=0.0)
    deliveries = [batch.append(0, None, b"v", ()), batch.append(0, None, b"v", ())]
    batch.failed(AbandonedError("gone"), {1: BrokerError(ErrorCode.INVALID_RECORD, "bad")})

    def catch() -> ref[Probe]:
        probe = Probe()
        kept = list(deliveries)
        for delivery in kept:
            with pytest.raises((AbandonedError, BrokerError)):
                delivery.result()
            try:
                assert delivery.error is not None
                raise delivery.error
            except (AbandonedError, BrokerError):
                pass
        return ref(probe)

    was_enabled = gc.isenabled()
    gc.disable()
    try:
        assert catch()() is None
    finally:
        if was_enabled:
            gc.enable()
    assert [type(delivery.error) for delivery in deliveries] == [AbandonedError, BrokerError]
    assert str(deliveries[1].error) == "INVALID_RECORD: bad"


def test_compiled_deliveries_are_not_tracked_by_the_garbage_collector() -> None:
    batch = ProducerBatch("t", 0, codec=Codec.NONE, ratio=1.0, size_limit=100, created_at=0.0)
    assert gc.is_tracked(batch.append(0, None, b"v", ())) == (Path(in_use.__file__ or "").suffix == ".py")


@pytest.mark.parametrize(
    "error", [BrokerError(ErrorCode.NOT_COORDINATOR), UnknownTopicError("t"), AbandonedError("a"), OSError(2, "no")]
)
def test_a_copied_error_equals_the_original_except_for_its_traceback(error: Exception) -> None:
    try:
        raise error from ValueError("why")
    except Exception:
        again = copied_error(error)
    assert (type(again), again.args, str(again), vars(again)) == (type(error), error.args, str(error), vars(error))
    assert (again.__traceback__, again.__cause__) == (None, error.__cause__)


class Queues:
    """The queue of one partition that the sticky partitioner has chosen."""

    def __init__(self, batch: Any) -> None:
        self.sticky = StickyPartitioner(16_384, Random(1))
        self.sticky.partition = 0
        self.queues = [SimpleNamespace(open_batch=batch)]


@BUILDS
@pytest.mark.parametrize("partition", [-1, 0])
@given(sizes=st.lists(st.integers(0, 3_000), max_size=40), growth=st.floats(0.01, 1.2))
def test_a_quick_append_never_fills_a_batch_and_reserves_what_it_appends(
    build: ModuleType, partition: int, sizes: list[int], growth: float
) -> None:
    batch = build.OpenBatch(16_384.0, growth)
    queues, memory = Queues(batch), BufferMemory(30_000)
    for size in sizes:
        bound = build.record_size_bound(None, bytes(size), ())
        before = (batch.record_count, bytes(batch.body), memory.used_bytes, queues.sticky.produced_bytes)
        delivery = build.append_to_open(queues, memory, partition, 5, None, bytes(size), (), bound)
        if delivery is None:
            after = (batch.record_count, bytes(batch.body), memory.used_bytes, queues.sticky.produced_bytes)
            assert after == before
            no_room = batch.room <= bound * max(growth, 1.0)
            assert no_room or memory.used_bytes + bound > memory.capacity_bytes
        else:
            assert batch.room > 0, "nothing has to be sent"
            assert batch.record_count == before[0] + 1
            assert memory.used_bytes == before[2] + bound == batch.reserved_bytes
    produced = 16_384 - batch.room if partition < 0 else 0.0
    assert queues.sticky.produced_bytes == pytest.approx(produced)


@BUILDS
def test_a_quick_append_without_a_usable_open_batch_returns_none(build: ModuleType) -> None:
    memory = BufferMemory(1 << 20)

    def quick(queues: Any, partition: int, value: Any = b"v") -> object:
        return build.append_to_open(queues, memory, partition, 5, None, value, (), 100)

    assert quick(Queues(None), -1) is None, "no batch is open"
    queues = Queues(build.OpenBatch(16_384.0, 1.0))
    assert quick(queues, 1) is None, "there is no such partition"
    queues.sticky.produced_bytes = float(queues.sticky.finish_limit_bytes)
    assert quick(queues, -1) is None, "the visit is over"
    queues.sticky.partition = -1
    assert quick(queues, -1) is None, "no partition is chosen"
    with pytest.raises((TypeError, AttributeError)):
        quick(queues, 0, "text")
    assert memory.used_bytes == 0
    assert quick(queues, 0) is not None
