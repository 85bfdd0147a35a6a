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
    """Return the bytes by partition; those in `keeps_open` are slow, and send their batches only when full."""
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
def test_partition_shares_are_uniform_whichever_partitions_are_slow(record_bytes: int, slow: set[int]) -> None:
    sticky = StickyPartitioner(BATCH_SIZE, Random(1))
    sent = fill(sticky, [0, 1, 2], record_bytes, 400 * BATCH_SIZE // record_bytes * 4, slow)
    for partition in range(3):
        assert sent[partition] / sent.total() == pytest.approx(1 / 3, abs=0.03)


def test_the_sticky_partition_changes_after_exactly_batch_size_bytes() -> None:
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


def test_a_partition_that_received_twice_batch_size_skips_its_next_turn() -> None:
    sticky = StickyPartitioner(BATCH_SIZE, Random(3))
    first = sticky.switch([0, 1])
    sticky.produced_bytes += BATCH_SIZE
    assert not sticky.is_due(100, fits_open_batch=True)
    sticky.produced_bytes += BATCH_SIZE
    assert sticky.is_due(100, fits_open_batch=True), "the partition changes after twice the bytes in any case"
    assert sticky.switch([0, 1]) != first, "twice the bytes were sent to the partition, so its next turn is skipped"


def test_a_single_partition_never_skips_a_turn() -> None:
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


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 30)), min_size=1))
def test_weights_fall_with_the_queue_and_the_answer_time(queues: list[tuple[float, float]]) -> None:
    sizes, seconds = [size for size, _ in queues], [time for _, time in queues]
    assert adaptive_weights(sizes, [0.0] * len(sizes)) == [1 / (size + 1) for size in sizes], "KIP-794's own"
    assert adaptive_weights(sizes, [0.0007] * len(sizes)) == [1 / (size + 1) for size in sizes]
    weights = adaptive_weights(sizes, seconds)
    assert all(0 < weight <= 1 / (size + 1) for size, weight in zip(sizes, weights, strict=True))
    assert adaptive_weights([0.0] * len(sizes), seconds) == [1.0] * len(sizes), "slow is not overloaded"


def test_a_queue_with_longer_response_times_lowers_the_weight_more() -> None:
    assert adaptive_weights([4, 4, 0], [0.020, 0.001, 0.001]) == [1 / 81, 1 / 5, 1.0]
    assert adaptive_weights([4, 4, 4], [0.0, 0.002, 0.001]) == [1 / 5, 1 / 9, 1 / 5]
    assert adaptive_weights([1, 1], [0.0002, 0.0009]) == [1 / 2, 1 / 2], "noise of equal brokers"


def test_the_choice_follows_the_weights() -> None:
    sticky = StickyPartitioner(1, Random(6))
    counts: Counter[int] = Counter()
    for _ in range(21_000):
        counts[sticky.switch([0, 1, 2], adaptive_weights([9, 0, 0], [0.0] * 3))] += 1
        sticky.produced_bytes += 1
    assert [counts[partition] for partition in range(3)] == pytest.approx([1_000, 10_000, 10_000], abs=3)


@pytest.mark.parametrize("record_bytes", [100, 543, 5_000, 40_000])
@pytest.mark.parametrize("count", [2, 3, 5, 12])
def test_equal_partitions_differ_by_a_few_visits_at_any_time(record_bytes: int, count: int) -> None:
    sticky = StickyPartitioner(BATCH_SIZE, Random(7))
    sent: Counter[int] = Counter()
    visit = max(BATCH_SIZE, record_bytes)
    for _ in range(100 * count * BATCH_SIZE // record_bytes + 1):
        if sticky.is_due(record_bytes, fits_open_batch=False):
            sticky.switch(range(count))
        sticky.produced_bytes += record_bytes
        sent[sticky.partition] += record_bytes
        assert max(sent.values()) - min(sent[partition] for partition in range(count)) <= 4 * visit


def test_a_partition_available_again_gets_no_more_than_its_share() -> None:
    sticky = StickyPartitioner(1, Random(8))
    for _ in range(1_000):
        sticky.switch([0, 1])
        sticky.produced_bytes += 1
    counts: Counter[int] = Counter()
    for _ in range(300):
        counts[sticky.switch([0, 1, 2])] += 1
        sticky.produced_bytes += 1
    assert counts[2] == pytest.approx(100, abs=12)


def test_producers_visit_the_partitions_in_orders_of_their_own() -> None:
    orders = set()
    for seed in range(50):
        sticky = StickyPartitioner(1, Random(seed))
        order = []
        for _ in range(3):
            order.append(sticky.switch([0, 1, 2]))
            sticky.produced_bytes += 1
        orders.add(tuple(order))
    assert len(orders) >= 5
