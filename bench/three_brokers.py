"""Three Gregor brokers as one cluster, the first of them slow: the setup of KIP-794's tests.

The slow broker has a fault rule (docs/faults.md) that holds each of its Produce answers for a while, one after the
other on a connection, as the KIP's broker does by sleeping in its produce response.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.bench_cluster import gregor_cluster
from gregor.client.admin import Admin, AlterOperation, NewTopic, ResourceType
from gregor.client.wire.offset_lookup import LATEST

BROKER_IDS = (1, 2, 3)
SLOW_BROKER_ID = BROKER_IDS[0]
RULE = "gregor.fault.rule.slow"


@contextmanager
def three_brokers() -> Iterator[str]:
    """Run a cluster on free ports with data in a temporary directory, during the context; yield its bootstrap
    servers.
    """
    with (
        tempfile.TemporaryDirectory(prefix="gregor-bench-") as directory,
        gregor_cluster(len(BROKER_IDS), Path(directory), "gregor.fault.injection.enable=true") as cluster,
    ):
        cluster.wait_for_brokers()
        yield cluster.bootstrap


async def slow_down(bootstrap: str, delay_ms: int) -> None:
    """Make the slow broker delay each Produce answer by `delay_ms` from now on."""
    async with Admin(bootstrap) as admin:
        setting = (AlterOperation.SET, RULE, f"api=Produce delay={delay_ms}ms")
        await admin.alter_configs(ResourceType.BROKER, str(SLOW_BROKER_ID), [setting])


async def create_topic(bootstrap: str, name: str) -> None:
    """Create a topic with one partition on each broker, the slow one's first."""
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(name, replica_assignments=[[node] for node in BROKER_IDS])])


async def records_by_broker(bootstrap: str, topic: str) -> list[int]:
    """Return the record count of each broker, the slow one first."""
    async with Admin(bootstrap) as admin:
        places = [(topic, partition) for partition in range(len(BROKER_IDS))]
        ends = await admin.list_offsets(dict.fromkeys(places, LATEST))
    found = [ends[place] for place in places]
    return [end.offset if end is not None else 0 for end in found]
