"""Generated topics in a broker: each task completes one partition up to the end of its recipe."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from ...client import Delivery, Producer
from ...protocol.records import v2
from ..errors import PipelineError
from ..kafka.clients import bootstrap_of, client_config, run_client
from ..kafka.cluster_view import ClusterView
from ..kafka.offset_options import LATEST
from ..kafka.wire import WireSettings
from .synthetic import Recipe

DELIVERIES_AHEAD = 32
MAX_REQUEST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """The work of one task: a partition of a recipe."""

    recipe: Recipe
    settings: WireSettings
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class PartitionReceipt:
    """The number of records that the partition had, and the number that was added."""

    partition: int
    found: int
    records: int


def produce_partition(work: PartitionWork) -> PartitionReceipt:
    """Append the records that the partition lacks.

    Raises PipelineError, also for a partition that does not match the recipe.
    """
    wanted = work.recipe.partition_records()[work.partition]
    place = (work.topic, work.partition)
    with ClusterView(work.settings) as cluster:
        found = cluster.list_offsets({place: LATEST})[place] or 0
    if found > wanted or (found % work.recipe.batch_records and found != wanted):
        raise PipelineError(
            f"{work.topic}-{work.partition} ends at offset {found}, where no batch of this recipe does: "
            "the topic is of another recipe, or another client writes to it"
        )
    run_client(f"{work.topic}-{work.partition}", _append, work, found, wanted)
    return PartitionReceipt(work.partition, found, wanted - found)


async def _append(work: PartitionWork, found: int, wanted: int) -> None:
    # A repeated batch in format v0 or v1 could not be detected.
    config: dict[str, Any] = {
        "enable_idempotence": work.recipe.magic == v2.MAGIC,
        "max_request_size": MAX_REQUEST_BYTES,
    }
    async with Producer(bootstrap_of(work.settings), **config, **client_config(work.settings)) as producer:
        under_way: deque[Delivery] = deque()
        for batch in work.recipe.batches(work.partition, from_offset=found) if found < wanted else ():
            under_way.append(await producer.send_batch(work.topic, work.partition, batch))
            if len(under_way) > DELIVERIES_AHEAD:
                await under_way.popleft()
        while under_way:
            await under_way.popleft()
