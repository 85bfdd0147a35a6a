"""KIP-126's split into parts of a given size."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.client.producer.appending_cy import Delivery
from gregor.client.producer.batch_cy import BatchState
from gregor.client.producer.compression_estimator import CompressionRatioEstimator
from gregor.client.producer.splitting import split
from gregor.protocol.records import v2
from gregor.protocol.records.batches import read_batch
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.v2 import next_sequence
from tests.client.batches import Raw, batch_of, contents

nullable = st.none() | st.binary(max_size=300)
raw_records = st.tuples(
    st.integers(0, 2**42), nullable, nullable, st.lists(st.tuples(st.text(max_size=20), nullable), max_size=3)
)


@settings(max_examples=60)
@given(
    st.lists(raw_records, min_size=2, max_size=40),
    st.sampled_from(Codec),
    st.integers(0, 2**31 - 1),
    st.floats(0, 1),
    st.booleans(),
)
async def test_parts_fit_and_keep_order_content_sequence_and_deliveries(
    records: list[Raw], codec: Codec, sequence: int, size: float, is_transactional: bool
) -> None:
    batch = batch_of(records, codec)
    deliveries = [Delivery(batch, index, record[0]) for index, record in enumerate(records)]
    reserved = batch.reserved_bytes
    estimator = CompressionRatioEstimator()
    batch.seal(estimator, is_transactional=is_transactional)
    batch.stamp(7, 1, sequence)
    limit = int(len(batch.payload) * size)
    parts = split(batch, limit, estimator)
    assert batch.state is BatchState.SPLIT
    assert [record for part in parts for record in contents(part)] == records
    assert len(parts) > 1
    assert all(len(part.payload) <= limit or part.record_count == 1 for part in parts if part.record_count)
    assert estimator.ratio("t", codec) == 1.0
    assert sum(part.reserved_bytes for part in parts) == reserved
    index = 0
    for part in parts:
        part.sent()
        view = read_batch(part.payload)
        assert view is not None
        assert view.crc_is_valid
        assert (view.producer_id, view.producer_epoch) == (7, 1)
        assert view.base_sequence == next_sequence(sequence, index)
        assert view.is_transactional is is_transactional
        part.delivered(1000 + index, -1, 0.0)
        for _ in range(part.record_count):
            assert deliveries[index].result().offset == 1000 + index
            assert deliveries[index].timestamp == records[index][0]
            index += 1


async def test_a_part_can_be_split_again() -> None:
    records: list[Raw] = [(n, None, b"%d" % n, []) for n in range(8)]
    batch = batch_of(records)
    deliveries = [Delivery(batch, index, index) for index in range(8)]
    estimator = CompressionRatioEstimator()
    batch.seal(estimator)
    first, second = split(batch, len(batch.payload) - 1, estimator)
    parts = [*split(first, 1, estimator), second]
    for part in parts:
        part.sent()
        part.delivered(int(contents(part)[0][2] or b""), -1, 0.0)
    assert [delivery.offset for delivery in deliveries] == list(range(8))


async def test_no_more_parts_than_needed() -> None:
    batch = batch_of([(0, None, b"x" * 100, [])] * 1_000)
    batch.seal(CompressionRatioEstimator())
    parts = split(batch, 10_000, CompressionRatioEstimator())
    assert 11 <= len(parts) <= 13, "1,000 records of about 107 bytes"
    assert max(part.record_count for part in parts) - min(part.record_count for part in parts[:-1]) == 0


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
async def test_records_that_compress_unequally_fit_nevertheless(codec: Codec) -> None:
    noise = random.Random(1)
    values = [bytes(1_000)] * 100 + [noise.randbytes(1_000) for _ in range(100)]
    records: list[Raw] = [(0, None, value, []) for value in values]
    batch = batch_of(records, codec)
    batch.seal(CompressionRatioEstimator())
    parts = split(batch, 5_000, CompressionRatioEstimator())
    assert all(len(part.payload) <= 5_000 for part in parts)
    assert [record for part in parts for record in contents(part)] == records


async def test_a_large_record_gets_a_part_of_its_own() -> None:
    small: list[Raw] = [(0, None, b"x" * 100, [])] * 20
    batch = batch_of([*small, (0, None, b"x" * 10_000, []), *small])
    batch.seal(CompressionRatioEstimator())
    parts = split(batch, 4_000, CompressionRatioEstimator())
    assert [part.record_count for part in parts] == [20, 1, 20]


async def test_parts_fit_the_limit_in_format_v1_for_old_brokers() -> None:
    batch = batch_of([(0, None, b"", [])] * 100)
    batch.seal(CompressionRatioEstimator())
    batch.sent_bytes = len(batch.legacy_payload())
    assert batch.sent_bytes > 3 * len(batch.payload)
    parts = split(batch, batch.sent_bytes // 4, CompressionRatioEstimator())
    assert all(len(part.legacy_payload()) <= batch.sent_bytes // 3 for part in parts)
    assert sum(part.record_count for part in parts) == 100
    assert len(parts[0].payload) > v2.HEADER_SIZE
