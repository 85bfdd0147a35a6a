"""Batches in the accumulator: when they are closed and sent, and their places after a failed send."""

from random import Random

from gregor.client.config import ProducerConfig
from gregor.client.producer.accumulator_cy import ANY_PARTITION, Accumulator
from gregor.client.producer.appending_cy import Delivery, record_size_bound
from gregor.client.producer.batch_cy import BatchState, ProducerBatch
from gregor.client.producer.buffer_memory import BufferMemory
from gregor.client.producer.compression_estimator import CompressionRatioEstimator
from gregor.client.producer.partition_queue_cy import PartitionQueue, TopicQueues
from gregor.protocol.records.compression import Codec

VALUE = b"x" * 1000


def anything_goes(queue: PartitionQueue, batch: ProducerBatch) -> bool:
    return True


class Scene:
    """An accumulator with one topic, whose partitions' leaders are the nodes of the same number."""

    def __init__(self, partitions: int = 1, **config: object) -> None:
        self.config = ProducerConfig.from_properties(config)
        self.memory = BufferMemory(self.config.buffer_memory)
        self.estimator = CompressionRatioEstimator()
        self.accumulator = Accumulator(self.config, self.estimator, self.memory, Random(1), lambda: self.now)
        self.now = 0.0
        self.topic: TopicQueues = self.accumulator.update_topic("t", list(range(partitions)))

    def append(self, value: bytes = VALUE, partition: int = 0, now: float = 0.0) -> Delivery:
        bound = record_size_bound(None, value, ())
        assert self.memory.try_reserve(bound)
        self.now = now
        return self.accumulator.append(self.topic, partition, 0, None, value, (), bound)[0]

    def drain(self, node: int = 0, now: float = 0.0, max_bytes: int = 1 << 20) -> list[ProducerBatch]:
        return [batch for _, batch in self.accumulator.drain(node, now, max_bytes, anything_goes)]


async def test_a_batch_closes_at_batch_size() -> None:
    scene = Scene(batch_size=5_000)
    for _ in range(10):
        scene.append()
    sizes = [batch.record_count for batch in scene.topic.queues[0].batches]
    assert sizes == [4, 4, 2]
    assert [batch.state for batch in scene.topic.queues[0].batches] == [
        BatchState.SEALED,
        BatchState.SEALED,
        BatchState.OPEN,
    ]


async def test_a_compressed_batch_closes_at_its_estimated_size() -> None:
    scene = Scene(batch_size=5_000, compression_type="gzip")
    for _ in range(160):
        scene.estimator.observe("t", Codec.GZIP, 0.1)
    for _ in range(100):
        scene.append()
    first = scene.topic.queues[0].batches[0]
    assert 18 <= first.record_count <= 24, "0.2 * 1.05 of a kilobyte each"


async def test_the_ratio_is_learnt_from_each_sealed_batch() -> None:
    scene = Scene(batch_size=5_000, compression_type="zstd")
    for _ in range(9):
        scene.append()
    assert scene.estimator.ratio("t", Codec.ZSTD) == 1.0 - 2 * 0.005


async def test_a_batch_is_ready_after_linger_ms_or_at_a_flush() -> None:
    scene = Scene(linger_ms=100)
    scene.append(now=1.0)
    readiness = scene.accumulator.ready(1.05)
    assert readiness.nodes == set()
    assert readiness.check_again_at == 1.1
    assert scene.accumulator.ready(1.1).nodes == {0}
    scene.accumulator.flushes += 1
    assert scene.accumulator.ready(1.05).nodes == {0}


async def test_a_full_batch_does_not_linger() -> None:
    scene = Scene(linger_ms=100, batch_size=2_000)
    for _ in range(2):
        scene.append()
    assert scene.accumulator.ready(0.0).nodes == {0}


async def test_topics_with_a_leaderless_partition_are_reported() -> None:
    scene = Scene()
    scene.append()
    scene.accumulator.update_topic("t", [None])
    readiness = scene.accumulator.ready(1.0)
    assert readiness.nodes == set()
    assert readiness.leaderless_topics == {"t"}


async def test_draining_takes_one_batch_per_partition_in_turn() -> None:
    scene = Scene(batch_size=1)
    scene.accumulator.update_topic("t", [0, 0, 0])
    for partition in (0, 0, 1, 2):
        scene.append(partition=partition)
    assert [batch.partition for batch in scene.drain(max_bytes=2_500)] == [0, 1]
    assert [batch.partition for batch in scene.drain(max_bytes=2_500)] == [2, 0]


async def test_a_batch_above_the_request_size_still_goes() -> None:
    scene = Scene()
    scene.append()
    assert len(scene.drain(max_bytes=1)) == 1


async def test_a_requeued_batch_is_first_and_waits_for_its_backoff() -> None:
    scene = Scene()
    scene.append()
    (batch,) = scene.drain()
    batch.sent()
    scene.append()
    queue = scene.topic.queues[0]
    scene.accumulator.requeue(queue, batch, retry_at=5.0)
    assert queue.batches[0] is batch
    assert scene.accumulator.ready(4.0).check_again_at == 5.0
    assert scene.drain(now=4.0) == []
    assert scene.drain(now=5.0) == [batch]


async def test_max_in_flight_1_drains_no_second_batch_while_the_first_is_in_flight() -> None:
    scene = Scene(batch_size=1, max_in_flight_requests_per_connection=1)
    scene.append()
    scene.append()
    assert len(scene.drain()) == 1
    assert scene.accumulator.ready(0.0).nodes == set()
    assert scene.drain() == []


async def test_the_parts_of_a_split_batch_are_queued_in_its_place() -> None:
    scene = Scene()
    for _ in range(4):
        scene.append()
    (batch,) = scene.drain()
    batch.sent()
    scene.append()
    queue = scene.topic.queues[0]
    scene.accumulator.split(queue, batch)
    assert [queued.record_count for queued in queue.batches] == [1, 1, 1, 1, 1], "half of the refused size"
    assert list(scene.accumulator.incomplete) == list(queue.batches), "in order of age"


async def test_a_batch_known_to_be_too_large_is_split_before_it_is_sent() -> None:
    scene = Scene(batch_size=20_000)
    for _ in range(10):
        scene.append()
    splits: list[None] = []
    scene.accumulator.on_split = lambda: splits.append(None)
    scene.accumulator.limits.refused("t", 5_000)
    scene.accumulator.limits.told("t", 3_200)
    queue = scene.topic.queues[0]
    sent = [batch for _ in range(4) for batch in scene.drain()]
    assert [batch.record_count for batch in sent] == [2, 2, 2, 2]
    assert [batch.record_count for batch in queue.batches] == [2]
    assert len(splits) == 1
    scene.append()
    scene.append()
    assert [batch.record_count for batch in queue.batches] == [2, 2], "new batches are no larger than the limit"


async def test_a_batch_that_may_be_stored_is_not_split() -> None:
    scene = Scene()
    scene.append()
    scene.append()
    (batch,) = scene.drain()
    batch.sent()
    scene.accumulator.limits.refused("t", 100)
    scene.accumulator.requeue(scene.topic.queues[0], batch, retry_at=0.0)
    assert scene.drain() == [batch]


async def test_buffer_memory_is_released_at_compression_and_at_completion() -> None:
    scene = Scene(compression_type="gzip")
    scene.append()
    before = scene.memory.used_bytes
    (batch,) = scene.drain()
    assert scene.memory.used_bytes == len(batch.payload) < before
    batch.sent()
    scene.accumulator.complete(scene.topic.queues[0], batch)
    assert scene.memory.used_bytes == 0


async def test_a_slow_node_is_avoided_after_the_availability_timeout() -> None:
    scene = Scene(partitions=2, batch_size=1, partitioner_availability_timeout_ms=5)
    scene.accumulator.node_blocked(0, 1.0)
    late = {scene.append(partition=ANY_PARTITION, now=1.010).partition for _ in range(20)}
    assert late == {1}
    scene.accumulator.node_took(0)
    assert {scene.append(partition=ANY_PARTITION, now=1.020).partition for _ in range(50)} == {0, 1}


async def test_longer_queues_are_chosen_less_often() -> None:
    scene = Scene(partitions=2, batch_size=1)
    for _ in range(9):
        scene.append(partition=0)
    counts = [0, 0]
    for _ in range(400):
        delivery = scene.append(partition=ANY_PARTITION)
        counts[delivery.partition] += 1
        # Both queues stay as they are: the new batch goes at once.
        scene.topic.queues[delivery.partition].batches.pop()
    assert counts[0] < 80 < counts[1]


async def test_an_evicted_topic_is_removed_once_it_has_no_batches() -> None:
    scene = Scene()
    scene.append()
    assert not scene.accumulator.forget_topic("t")
    scene.drain()[0].sent()
    assert not scene.accumulator.forget_topic("t")
    queue = scene.topic.queues[0]
    scene.accumulator.complete(queue, queue.under_way[0])
    assert scene.accumulator.forget_topic("t")
