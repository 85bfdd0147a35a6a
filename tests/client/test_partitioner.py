"""murmur2 as Java computes it, and the shares that KIP-794's partitioner gives."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.client.producer.partitioner import StickyPartitioner, adaptive_weights, partition_for_key
from gregor.protocol.records.murmur2_cy import murmur2

BATCH_SIZE = 16_384

# (key, Utils.murmur2 in Kafka's own tests, a signed int)
JAVA_HASHES = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "signed"), JAVA_HASHES)
def test_murmur2_is_that_of_java(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32
    assert partition_for_key(key, 10) == (signed & 0x7FFFFFFF) % 10


@given(st.binary(max_size=200), st.integers(1, 1000))
def test_a_key_always_goes_to_the_same_partition(key: bytes, count: int) -> None:
    partition = partition_for_key(key, count)
    assert 0 <= partition < count
    assert partition == partition_for_key(bytes(bytearray(key)), count)


def fill(
    sticky: StickyPartitioner, partitions: list[int], record_bytes: int, count: int, keeps_open: set[int]
) -> Counter[int]:
    """Bytes by partition; `keeps_open` are slow ones, whose batches are sent only when they are full."""
    sent: Counter[int] = Counter()
    open_bytes: Counter[int] = Counter()
    for _ in range(count):
        current = sticky.partition
        is_open = current in keeps_open and 0 < open_bytes[current] <= BATCH_SIZE - record_bytes
        if sticky.is_due(record_bytes, is_open):
            current = sticky.switch(partitions)
        if current in keeps_open:
            if open_bytes[current] + record_bytes > BATCH_SIZE:
                open_bytes[current] = 0
            open_bytes[current] += record_bytes
        sticky.produced_bytes += record_bytes
        sent[current] += record_bytes
    return sent


@pytest.mark.parametrize("record_bytes", [100, 543, 5_000, 12_000, 40_000])
@pytest.mark.parametrize("slow", [set(), {0}, {0, 1, 2}])
def test_shares_are_uniform_whoever_is_slow(record_bytes: int, slow: set[int]) -> None:
    sticky = StickyPartitioner(BATCH_SIZE, Random(1))
    sent = fill(sticky, [0, 1, 2], record_bytes, 400 * BATCH_SIZE // record_bytes * 4, slow)
    for partition in range(3):
        assert sent[partition] / sent.total() == pytest.approx(1 / 3, abs=0.03)


def test_stays_for_a_whole_batch_and_no_longer() -> None:
    sticky = StickyPartitioner(BATCH_SIZE, Random(2))
    sticky.switch([0, 1, 2])
    visits = [0]
    for _ in range(10_000):
        if sticky.is_due(512, fits_open_batch=False):
            sticky.switch([0, 1, 2])
            visits.append(0)
        sticky.produced_bytes += 512
        visits[-1] += 512
    assert set(visits[:-1]) == {BATCH_SIZE}


def test_a_lingering_batch_is_finished_first_and_paid_for_later() -> None:
    sticky = StickyPartitioner(BATCH_SIZE, Random(3))
    first = sticky.switch([0, 1])
    sticky.produced_bytes += BATCH_SIZE
    assert not sticky.is_due(100, fits_open_batch=True)
    sticky.produced_bytes += BATCH_SIZE
    assert sticky.is_due(100, fits_open_batch=True), "at twice the bytes it is over in any case"
    assert sticky.switch([0, 1]) != first, "the visit was worth two, so the next one is skipped"


def test_a_single_partition_has_no_debts() -> None:
    sticky = StickyPartitioner(BATCH_SIZE, Random(4))
    for _ in range(5):
        assert sticky.switch([7]) == 7
        sticky.produced_bytes += 3 * BATCH_SIZE


def test_batch_size_zero_switches_after_each_record() -> None:
    sticky = StickyPartitioner(0, Random(5))
    for _ in range(3_000):
        assert sticky.is_due(100, fits_open_batch=False)
        sticky.switch([0, 1, 2])
        sticky.produced_bytes += 100


@given(st.lists(st.integers(0, 1000), min_size=1))
def test_odds_fall_with_the_queue(sizes: list[int]) -> None:
    weights = adaptive_weights(sizes)
    for size, weight in zip(sizes, weights, strict=True):
        assert weight == 1 / (size + 1)


def test_adaptive_choice_follows_the_odds() -> None:
    sticky = StickyPartitioner(1, Random(6))
    counts = Counter(sticky.switch([0, 1, 2], adaptive_weights([9, 0, 0])) for _ in range(21_000))
    assert counts[0] == pytest.approx(1_000, rel=0.15)
    assert counts[1] == pytest.approx(10_000, rel=0.05)
