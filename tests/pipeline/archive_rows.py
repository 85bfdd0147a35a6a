"""Topics for the tests of archives, and the rows of these archives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import trio
from pyarrow import parquet

from gregor.client import Admin, Producer
from gregor.client.admin import NewTopic
from gregor.pipeline.archive.manifest import Manifest
from gregor.pipeline.filesystems.files import parquet_source
from gregor.pipeline.filesystems.locations import Location, name_below
from gregor.pipeline.kafka.cluster_view import ClusterView
from gregor.pipeline.kafka.offset_options import LATEST
from gregor.pipeline.kafka.wire import WireSettings
from tests.broker_process import BrokerProcess

DAY_MS = 86_400_000


class Addressed(Protocol):
    """A broker that clients reach without a login."""

    @property
    def bootstrap(self) -> str:
        """Return the address for ``bootstrap.servers`` of clients."""


def make_topic(broker: Addressed, topic: str, partitions: int = 2) -> None:
    """Create a new topic."""

    async def make() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, partitions, 1)])

    trio.run(make)


def produce(broker: Addressed, topic: str, values: Sequence[bytes | None], partitions: int = 2, **config: Any) -> None:
    """Produce values to the partitions in turn, with timestamps a day apart."""

    async def send() -> None:
        async with Producer(broker.bootstrap, linger_ms=5, **config) as producer:
            for number, value in enumerate(values):
                await producer.send(
                    topic,
                    value,
                    key=b"k%d" % number,
                    partition=number % partitions,
                    timestamp_ms=DAY_MS * (1 + number // 10),
                    headers=[("h", b"1")],
                )

    trio.run(send)


def rows_of(root: Location) -> list[dict[str, Any]]:
    """Return all rows that count, in order."""
    rows = []
    for path in Manifest(root).files():
        folder = name_below(path.parent, root)
        rows += [{**row, "path": folder} for row in parquet.ParquetFile(parquet_source(path)).read().to_pylist()]
    return sorted(rows, key=lambda row: (row["partition"], row.get("offset", row.get("lastOffset"))))


def arguments(broker: BrokerProcess, topic: str, root: Location, *more: str) -> list[str]:
    """Return arguments of the job `archive`, for an archive without tables unless `more` says otherwise."""
    where = ["--bootstrap-server", broker.bootstrap, "--topics", topic, "--archive", str(root)]
    return [*where, *plain(root, more), *more]


def plain(root: Location, more: Sequence[str] = ()) -> list[str]:
    """Return the option for a new archive in Parquet files, which needs no Spark; none where `more` has a format."""
    return [] if "--format" in more or (root / "archive.json").exists() else ["--format", "parquet"]


def end_offsets(broker: BrokerProcess, topic: str) -> list[int]:
    """Return the end offset of each partition of the topic."""
    with ClusterView(WireSettings.from_options({"kafka.bootstrap.servers": broker.bootstrap})) as cluster:
        partitions = cluster.topics([topic])[topic].partitions
        found = cluster.list_offsets({(topic, partition): LATEST for partition in partitions})
    return [found[topic, partition] or 0 for partition in partitions]
