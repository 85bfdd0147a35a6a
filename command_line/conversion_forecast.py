"""The forecast of `gregor topics --describe --down-conversion`: what old consumers of a topic would cost its brokers.

Batches are read from offsets at equal distances, as they are stored, and converted here. The results are scaled to the
size of the topic, so bytes and CPU time are estimates; refusals are exact for the batches read. No broker converts
anything for a forecast, and it also works with Kafka brokers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from ..client.admin import Admin, ResourceType
from ..client.wire.cluster import TopicMetadata
from ..client.wire.offset_lookup import EARLIEST, LATEST
from ..protocol.apis import ApiKey
from ..protocol.errors import BrokerError, ErrorCode
from ..protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ..protocol.records import v0, v1
from ..protocol.records.batches import BatchView, iter_batches
from ..protocol.records.compression import Codec
from ..protocol.records.convert import convert_with_codec, down_convert_batch
from ..protocol.topic_partition import AnyTopicPartition

SAMPLES = 64
"""Fetches for each topic; each partition has at least one."""
SAMPLE_BYTES = 64 * 1024
NEWEST_FETCH_BY_NAME = 12
ENABLED, ZSTD_CODEC = "message.downconversion.enable", "gregor.message.downconversion.zstd.codec"

READERS = {v1.MAGIC: "Fetch v2 and v3 (clients of 0.10)", v0.MAGIC: "Fetch v0 and v1 (clients before 0.10)"}
"""The consumers that need a conversion, by the format that they read."""


@dataclass(slots=True)
class Cost:
    """The cost of converting a topic once for one kind of reader, in bytes and CPU seconds; `refused` by reason."""

    converted_stored_bytes: float = 0.0
    sent_bytes: float = 0.0
    cpu_s: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)

    def scaled(self, factor: float) -> Cost:
        """Return the cost of `factor` times as many bytes."""
        refused = Counter({reason: round(size * factor) for reason, size in self.refused.items()})
        return Cost(self.converted_stored_bytes * factor, self.sent_bytes * factor, self.cpu_s * factor, refused)


@dataclass(slots=True)
class Forecast:
    """A forecast for one topic; `stored` are the sampled bytes by format and codec."""

    topic: str
    size_bytes: int
    sampled_bytes: int = 0
    sampled_batches: int = 0
    stored: Counter[tuple[int, Codec]] = field(default_factory=Counter)
    costs: dict[int, Cost] = field(default_factory=lambda: {magic: Cost() for magic in READERS})

    @property
    def scale(self) -> float:
        """The number of bytes for which each sampled byte stands."""
        return self.size_bytes / self.sampled_bytes if self.sampled_bytes else 0.0

    def scaled_costs(self) -> dict[int, Cost]:
        """Return the costs for the whole topic, by the format of the reader."""
        return {magic: cost.scaled(self.scale) for magic, cost in self.costs.items()}

    def lines(self) -> Iterator[str]:
        """Yield the lines of the forecast, as `topics --describe` writes them."""
        yield (
            f"Topic: {self.topic}\tBytes: {self.size_bytes}\tSampledBytes: {self.sampled_bytes}"
            f"\tSampledBatches: {self.sampled_batches}"
        )
        for (magic, codec), size in sorted(self.stored.items()):
            share = size / self.sampled_bytes
            yield f"\tFormat: v{magic}\tCompression: {codec.name.lower()}\tShare: {share:.0%}"
        for magic, cost in self.scaled_costs().items():
            refused = ", ".join(f"{size} bytes by {reason}" for reason, size in cost.refused.items()) or "none"
            yield (
                f"\tReader: {READERS[magic]}\tConvertedBytes: {cost.converted_stored_bytes:.0f}"
                f"\tSentBytes: {cost.sent_bytes:.0f}\tCpuSeconds: {cost.cpu_s:.2f}\tRefused: {refused}"
            )

    def as_object(self) -> dict[str, object]:
        """Return the forecast for JSON."""
        return {
            "topic": self.topic,
            "bytes": self.size_bytes,
            "sampled_bytes": self.sampled_bytes,
            "sampled_batches": self.sampled_batches,
            "stored": [
                {"format": magic, "compression": codec.name.lower(), "sampled_bytes": size}
                for (magic, codec), size in sorted(self.stored.items())
            ],
            "readers": [
                {
                    "format": magic,
                    "converted_bytes": round(cost.converted_stored_bytes),
                    "sent_bytes": round(cost.sent_bytes),
                    "cpu_seconds": round(cost.cpu_s, 3),
                    "refused_bytes": dict(cost.refused),
                }
                for magic, cost in self.scaled_costs().items()
            ],
        }


async def forecast(admin: Admin, topic: TopicMetadata) -> Forecast:
    """Sample a topic and return its forecast. Raises ClientError, BrokerError."""
    places = [(topic.name, partition.index) for partition in topic.partitions if partition.leader is not None]
    found = Forecast(topic.name, await _size_bytes(admin, topic))
    configs = {entry.name: entry.value for entry in await admin.describe_configs(ResourceType.TOPIC, topic.name)}
    is_enabled = configs.get(ENABLED) != "false"
    zstd_codec = await _zstd_codec(admin, topic)
    starts = await admin.list_offsets(dict.fromkeys(places, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(places, LATEST))
    for place in places:
        first, end = starts[place], ends[place]
        if first is None or end is None:
            continue
        seen = first.offset
        for offset in _sampled_offsets(first.offset, end.offset, max(1, SAMPLES // len(places))):
            for batch in await _batches_at(admin, place, max(offset, seen)):
                if batch.last_offset >= seen:
                    seen = batch.last_offset + 1
                    _count(found, batch, is_enabled, zstd_codec)
    return found


def _sampled_offsets(start: int, end: int, count: int) -> Sequence[int]:
    step = max(1, (end - start) // count)
    return range(start, end, step)[:count]


async def _size_bytes(admin: Admin, topic: TopicMetadata) -> int:
    """Return the size of the leaders' replicas on disk."""
    leaders = {partition.index: partition.leader for partition in topic.partitions}
    answers = await admin.describe_log_dirs([(topic.name, index) for index in leaders])
    return sum(
        part.partition_size
        for node, directories in answers.items()
        for directory in directories
        for described in directory.topics
        for part in described.partitions
        if leaders.get(part.partition_index) == node and not part.is_future_key
    )


async def _zstd_codec(admin: Admin, topic: TopicMetadata) -> Codec | None:
    """Return the codec by which Gregor brokers replace zstd for old readers; None where zstd is refused."""
    leader = next((partition.leader for partition in topic.partitions if partition.leader is not None), None)
    if leader is None:
        return None
    configs = {entry.name: entry.value for entry in await admin.describe_configs(ResourceType.BROKER, str(leader))}
    name = configs.get(ZSTD_CODEC) or "none"
    return None if name == "none" else Codec[name.upper()]


async def _batches_at(admin: Admin, place: AnyTopicPartition, offset: int) -> list[BatchView]:
    """Return the whole batches of one Fetch, as they are stored."""
    topic, partition = place
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=SAMPLE_BYTES)
    request = FetchRequest(
        max_bytes=SAMPLE_BYTES, gregor_as_stored=True, topics=[FetchTopic(topic=topic, partitions=[wanted])]
    )
    version = await admin.version(ApiKey.FETCH, newest=NEWEST_FETCH_BY_NAME)
    answer = await admin.ask(await admin.leader(topic, partition), request, FetchResponse, version=version)
    part = answer.responses[0].partitions[0]
    if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        # Retention has deleted the offset meanwhile.
        return []
    if part.error_code:
        raise BrokerError(ErrorCode(part.error_code), f"{topic}-{partition} at offset {offset}")
    return list(iter_batches(cast("bytes | memoryview", part.records) or b""))


def _count(found: Forecast, batch: BatchView, is_enabled: bool, zstd_codec: Codec | None) -> None:
    """Add a batch to the sample, and convert it for each kind of reader."""
    found.sampled_bytes += batch.size_bytes
    found.sampled_batches += 1
    found.stored[batch.magic, batch.codec] += batch.size_bytes
    for to_magic, cost in found.costs.items():
        if batch.magic <= to_magic and not batch.is_numbered_by_index:
            cost.sent_bytes += batch.size_bytes
        elif not is_enabled:
            cost.refused[f"{ENABLED}=false"] += batch.size_bytes
        else:
            _convert(cost, batch, to_magic, zstd_codec)


def _convert(cost: Cost, batch: BatchView, to_magic: int, zstd_codec: Codec | None) -> None:
    began_ns = time.thread_time_ns()
    try:
        if batch.is_compressed and not batch.is_control:
            converted = convert_with_codec(batch, to_magic, zstd_codec=zstd_codec)
        else:
            converted = down_convert_batch(batch, to_magic, batch.base_offset)
    except BrokerError as refusal:
        is_zstd = refusal.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        cost.refused["zstd" if is_zstd else refusal.code.name] += batch.size_bytes
        return
    cost.cpu_s += (time.thread_time_ns() - began_ns) / 1e9
    cost.converted_stored_bytes += batch.size_bytes
    cost.sent_bytes += len(converted.data)
