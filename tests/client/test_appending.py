"""What is done for each record, compiled and not; and that failed deliveries keep nothing alive."""

from __future__ import annotations

import gc
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.client.errors import AbandonedError, UnknownTopicError, anew
from gregor.client.producer import appending_cy as in_use
from gregor.client.producer import batch as batch_module
from gregor.client.producer.batch import ProducerBatch
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records.compression import Codec
from tests.conftest import pure_twin

PURE = pure_twin(Path(batch_module.__file__).with_name("appending_cy.py"))
BUILDS = pytest.mark.parametrize("build", [in_use, PURE], ids=["in use", "pure"])

nullable = st.none() | st.binary(max_size=200)
header_lists = st.lists(st.tuples(st.text(max_size=10), nullable), max_size=3)
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
rows = st.lists(st.tuples(st.integers(0, 2**41), nullable, nullable, header_lists), min_size=1, max_size=20)


class Probe:
    """Something that a frame holds."""


def filled(build: ModuleType, records: list[Row]) -> Any:
    batch = build.OpenBatch(16_384.0, 1.05)
    for timestamp, key, value, headers in records:
        assert batch.append(timestamp, key, value, headers, 100).timestamp == timestamp
    return batch


@given(rows)
def test_both_builds_make_the_same(records: list[Row]) -> None:
    one, other = filled(in_use, records), filled(PURE, records)
    for name in in_use.OpenBatch.__slots__:
        assert getattr(one, name) == getattr(other, name)
    assert one.record_count == len(records)
    assert one.room == pytest.approx(16_384 - len(one.body) * 1.05)
    assert one.reserved_bytes == 100 * len(records)


@BUILDS
def test_what_is_no_record_leaves_no_trace(build: ModuleType) -> None:
    batch = filled(build, [(7, None, b"v", [])])
    body = bytes(batch.body)
    with pytest.raises((TypeError, AttributeError)):
        batch.append(8, None, "text", [(7, b"not a name")], 100)
    assert (batch.body, batch.record_count, batch.reserved_bytes, batch.max_timestamp) == (body, 1, 100, 7)


async def test_who_catches_an_error_is_not_kept_alive() -> None:
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


def test_deliveries_are_no_work_for_the_collector() -> None:
    batch = ProducerBatch("t", 0, codec=Codec.NONE, ratio=1.0, size_limit=100, created_at=0.0)
    assert gc.is_tracked(batch.append(0, None, b"v", ())) == (Path(in_use.__file__ or "").suffix == ".py")


@pytest.mark.parametrize(
    "error", [BrokerError(ErrorCode.NOT_COORDINATOR), UnknownTopicError("t"), AbandonedError("a"), OSError(2, "no")]
)
def test_an_error_anew_is_the_same_but_for_its_traceback(error: Exception) -> None:
    try:
        raise error from ValueError("why")
    except Exception:
        again = anew(error)
    assert (type(again), again.args, str(again), vars(again)) == (type(error), error.args, str(error), vars(error))
    assert (again.__traceback__, again.__cause__) == (None, error.__cause__)
