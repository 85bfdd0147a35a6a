"""A batch's bytes, and its states."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.client.producer.appending_cy import Delivery, record_size_bound
from gregor.client.producer.batch_cy import BatchState
from gregor.client.producer.compression_estimator import CompressionRatioEstimator
from gregor.protocol.records import v2
from gregor.protocol.records.batches import read_batch
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Header
from gregor.protocol.records.v2 import next_sequence
from tests.client.batches import Raw, batch_of, contents

nullable = st.none() | st.binary(max_size=300)
raw_records = st.tuples(
    st.integers(0, 2**42), nullable, nullable, st.lists(st.tuples(st.text(max_size=20), nullable), max_size=3)
)


async def test_the_payload_equals_that_of_v2_build_batch() -> None:
    batch = batch_of([(5, b"k", b"v", [("h", None), ("ü", b"1")]), (3, None, None, [])])
    batch.seal(CompressionRatioEstimator())
    batch.sent()
    view = read_batch(batch.payload)
    assert view is not None
    assert view.crc_is_valid
    assert (view.base_timestamp, view.max_timestamp, view.record_count) == (5, 5, 2)
    records = list(batch.records())
    assert batch.payload == v2.build_batch(records)
    assert records[0].headers == (Header(b"h", None), Header("ü".encode(), b"1"))


@settings(max_examples=50)
@given(st.lists(raw_records, min_size=1, max_size=20), st.sampled_from(Codec))
async def test_the_size_is_never_above_the_bound(records: list[Raw], codec: Codec) -> None:
    batch = batch_of(records, codec)
    estimate = batch.estimated_size
    bound = v2.HEADER_SIZE + sum(record_size_bound(key, value, headers) for _, key, value, headers in records)
    batch.seal(CompressionRatioEstimator())
    assert contents(batch) == records
    if codec is Codec.NONE:
        assert estimate == len(batch.payload) <= bound


async def test_legacy_brokers_get_format_v1() -> None:
    batch = batch_of([(5, b"k", b"v", [("gone", b"x")])])
    batch.seal(CompressionRatioEstimator())
    view = read_batch(batch.legacy_payload())
    assert view is not None
    assert (view.magic, view.max_timestamp) == (1, 5)


async def test_a_batch_is_sealed_sent_retried_and_delivered_and_not_sent_again() -> None:
    batch = batch_of([(0, None, b"v", [])])
    delivery = Delivery(batch, 0, 0)
    with pytest.raises(RuntimeError):
        delivery.result()
    batch.seal(CompressionRatioEstimator())
    batch.sent()
    batch.back_to_queue(1.0)
    batch.sent()
    batch.delivered(42, 99, 0.0)
    assert batch.state is BatchState.DELIVERED
    assert delivery.result() == ("t", 0, 42, 99)
    assert await delivery == delivery.result()
    with pytest.raises(AssertionError):
        batch.sent()


async def test_single_records_can_have_errors_of_their_own() -> None:
    batch = batch_of([(0, None, b"good", []), (0, None, b"bad", [])])
    good, bad = Delivery(batch, 0, 0), Delivery(batch, 1, 0)
    batch.seal(CompressionRatioEstimator())
    batch.sent()
    batch.failed(ValueError("another record"), {1: ValueError("this record")})
    assert str(good.error) == "another record"
    with pytest.raises(ValueError, match="this record"):
        await bad


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**20))
def test_sequences_wrap_at_the_largest_int(base: int, count: int) -> None:
    assert next_sequence(base, count) == (base + count) % 2**31
