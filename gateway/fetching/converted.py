"""Batches that were fetched for an old consumer, as parts that convert them while they are sent.

The rules are those of `protocol.records.lazy`: a promised size from the first batch alone, then 128 kB at a time, as
fast as the client reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic

import trio

from ...broker.conversion.conversion_pool import ConversionMemory, ConversionPool
from ...broker.conversion.converted_sending import ConvertedSending, plan_conversion
from ...broker.conversion.readable_formats import FIRST_VERSION_WITH_ZSTD, newest_readable_magic
from ...broker.server.client_connection import ConversionCost
from ...broker.server.parts import Sink
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.fetch import FetchPartition, FetchResponse, PartitionData
from ...protocol.records import v2
from ...protocol.records.aborted import without_aborted
from ...protocol.records.batches import iter_batches, read_batch
from ...protocol.records.conversion_need import needs_conversion
from ...protocol.records.lazy import LazyConversion
from ...protocol.records.stretch import HeldStretch

LAST_VERSION_WITHOUT_MAX_BYTES = 2
"""Up to this version the limit of a partition also holds for its first batch (Kafka: `hardMaxBytesLimit`)."""
LONGEST_TURN_S = 0.005
"""The time for which partitions are planned before other clients get their turn."""

Place = tuple[str, int]
Estimate = Callable[[memoryview, int, float], int | None]
"""Returns the next offset of a client, from batches, the promised size of their messages, and the first's growth."""


class HeldBatches(HeldStretch):
    """A view of fetched batches, which are in memory."""

    __slots__ = ("memory",)

    def __init__(self, batches: memoryview, memory: ConversionMemory) -> None:
        super().__init__(batches)
        self.memory = memory

    def give_back_pages(self) -> None:
        """Do nothing: the batches are held until the answer is sent."""


class ConvertedBatches:
    """A part with one partition's batches in an older format; its size is promised by the plan."""

    __slots__ = ("_batches", "_conversion", "_costs", "_pool", "size")

    def __init__(
        self, batches: HeldBatches, conversion: LazyConversion, pool: ConversionPool, costs: Sequence[ConversionCost]
    ) -> None:
        self._batches = batches
        self._conversion = conversion
        self._pool = pool
        self._costs = costs
        self.size = conversion.size

    async def send_to(self, sink: Sink) -> None:
        """Convert and send the batches."""
        sending = ConvertedSending(self._batches, self._conversion, self._pool, self._costs, _keep_held)
        await sending.send_to(sink)


def _keep_held() -> None:
    """Do nothing: the batches of all partitions are released together, behind the answer."""


class AnswerEnd:
    """A part of no bytes behind an answer, which releases what the answer holds."""

    size = 0

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release

    async def send_to(self, _sink: Sink) -> None:
        """Release it."""
        self._release()


class FetchConversion:
    """The conversion of one answer for consumers that do not read it: of v0 to v3, and of v4 to v9 without zstd."""

    def __init__(
        self,
        version: int,
        pool: ConversionPool,
        costs: Sequence[ConversionCost],
        zstd_refused: Callable[[], None],
        estimate: Estimate | None = None,
    ) -> None:
        """Convert for a client of Fetch ``version``; each partition refused for its zstd calls ``zstd_refused``."""
        self._version = version
        self._count_refused_zstd = zstd_refused
        self._estimate = estimate
        self.next_offsets: dict[Place, int] = {}
        """The offsets from which the client's next fetch is sent ahead, according to the estimate."""
        self._to_magic = newest_readable_magic(version)
        self._zstd_codec = pool.zstd_codec if version < FIRST_VERSION_WITH_ZSTD else None
        self._pool = pool
        self._costs = costs

    async def convert(self, found: FetchResponse, asked: Mapping[Place, FetchPartition]) -> dict[Place, int]:
        """Replace the records of each partition by parts in the client's format.

        Returns the next offset of each partition of which all batches give no record: control batches and aborted ones.
        """
        empty: dict[Place, int] = {}
        turn_end = monotonic() + LONGEST_TURN_S
        for topic in found.responses:
            for part in topic.partitions:
                place = (topic.topic, part.partition_index)
                if place in asked and not part.error_code and part.records:
                    next_offset = await self._convert_partition(part, asked[place], place)
                    if next_offset is not None:
                        empty[place] = next_offset
                else:
                    part.records = b""
                if monotonic() >= turn_end:
                    await trio.lowlevel.checkpoint()
                    turn_end = monotonic() + LONGEST_TURN_S
        return empty

    async def _convert_partition(self, part: PartitionData, asked: FetchPartition, place: Place) -> int | None:
        stored = part.records
        assert isinstance(stored, memoryview)
        most_bytes = asked.partition_max_bytes if self._version <= LAST_VERSION_WITHOUT_MAX_BYTES else None
        try:
            if not needs_conversion(stored, self._to_magic, reads_zstd=self._zstd_codec is None):
                part.records = stored[:most_bytes] if read_batch(stored) is not None else b""
                return None
            batches = stored
            if self._to_magic < v2.MAGIC:
                aborted = [(each.first_offset, each.producer_id) for each in part.aborted_transactions or ()]
                batches = without_aborted(stored, aborted)
            conversion, cpu_ns = await plan_conversion(
                lambda memory: HeldBatches(batches, memory),
                self._to_magic,
                asked.fetch_offset,
                self._pool,
                most_bytes=most_bytes,
                zstd_codec=self._zstd_codec,
            )
        except BrokerError as error:
            if error.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
                self._count_refused_zstd()
            part.error_code, part.high_watermark, part.records = error.code, -1, b""
            return None
        for cost in self._costs:
            cost.add(0, 0, cpu_ns)
        if conversion.first_end == 0:
            part.records = b""
            return max((batch.last_offset + 1 for batch in iter_batches(stored)), default=None)
        if self._estimate is not None:
            estimated = self._estimate(batches, conversion.size, conversion.growth)
            if estimated is not None and estimated > asked.fetch_offset:
                self.next_offsets[place] = estimated
        part.records = ConvertedBatches(HeldBatches(batches, self._pool.shared), conversion, self._pool, self._costs)
        return None
