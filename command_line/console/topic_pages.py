"""Topics: the list, and of each topic its partitions and configuration; creation, deletion and changes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...broker.http.messages import HttpResponse
from ...client.admin import AlterOperation, NewTopic, ResourceType
from ...client.wire.offset_lookup import EARLIEST, LATEST
from .paging import Paging
from .site import ANY, RefusedError, Site, Visit, link

if TYPE_CHECKING:
    from ...client.wire.cluster import PartitionMetadata, TopicMetadata
    from .sources import Sources

BROKER_DEFAULT = -1
TOPIC_SOURCE = 1
"""The source of a configuration (DescribeConfigsResponse.ConfigSource)."""
SOURCE_NAMES = {1: "topic", 2: "broker", 3: "all brokers", 4: "file", 5: "default"}
MOST_PARTITIONS_TO_MEASURE = 2000
"""Most partitions of which one page asks for offsets and sizes."""


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition in its topic's table; offsets and size are None where no broker told them."""

    state: PartitionMetadata
    start: int | None
    end: int | None
    size_bytes: int | None

    @property
    def span(self) -> int | None:
        """The number of offsets from the first record to the log's end; compaction may leave fewer records."""
        return self.end - self.start if self.start is not None and self.end is not None else None


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic in the list."""

    topic: TopicMetadata
    partitions: list[PartitionRow]

    @property
    def span(self) -> int:
        """The sum of the partitions' offsets."""
        return sum(row.span or 0 for row in self.partitions)

    @property
    def size_bytes(self) -> int:
        """The size of one replica of each partition."""
        return sum(row.size_bytes or 0 for row in self.partitions)

    @property
    def troubled(self) -> int:
        """The number of partitions without a leader or with replicas that are not in sync."""
        states = [row.state for row in self.partitions]
        return sum(state.leader is None or len(state.in_sync_replicas) < len(state.replicas) for state in states)


def add_topic_pages(site: Site, sources: Sources) -> None:
    """Add the pages about topics to the site."""
    admin = sources.admin

    @site.get("topics")
    async def list_topics(visit: Visit) -> HttpResponse:
        wanted, with_internal = visit.text("filter").lower(), visit.is_set("internal")
        chosen = sorted(
            (
                topic
                for topic in await admin.describe_topics()
                if wanted in topic.name.lower() and (with_internal or not topic.is_internal)
            ),
            key=lambda topic: topic.name,
        )
        paging = Paging(visit.number("page", 1, least=1), len(chosen))
        rows = await _measured(sources, paging.cut(chosen))
        fields = {"filter": visit.text("filter"), "internal": "1" if with_internal else ""}
        return site.page("topics.html", visit, rows=rows, paging=paging, fields=fields)

    @site.post("topics")
    async def create(visit: Visit) -> HttpResponse:
        name = visit.text("name")
        configs = _configs(visit.text("configs"))
        partitions = visit.number("partitions", BROKER_DEFAULT, least=-1, most=2**31 - 1)
        factor = visit.number("factor", BROKER_DEFAULT, least=-1, most=2**15 - 1)
        await admin.create_topics([NewTopic(name, partitions, factor, configs)])
        return site.done(f"Topic {name} was created.", link("topics", name))

    @site.get("topics", ANY, "partitions")
    async def partitions(visit: Visit) -> HttpResponse:
        described = await admin.describe_topics([visit.names[0]])
        paging = Paging(visit.number("page", 1, least=1), len(described[0].partitions))
        (row,) = await _measured(sources, described, paging)
        return site.page("partitions.html", visit, topic=described[0], row=row, paging=paging)

    @site.post("topics", ANY, "partitions")
    async def add_partitions(visit: Visit) -> HttpResponse:
        count = visit.number("count", 0, least=1, most=2**31 - 1)
        await admin.create_partitions(visit.names[0], count)
        return site.done(f"The topic has {count} partitions.", link("topics", visit.names[0], "partitions"))

    @site.get("topics", ANY, "configs")
    async def configs(visit: Visit) -> HttpResponse:
        name = visit.names[0]
        (topic,) = await admin.describe_topics([name])
        entries = await admin.describe_configs(ResourceType.TOPIC, name, include_documentation=True)
        return site.page(
            "configs.html",
            visit,
            topic=topic,
            entries=sorted(entries, key=lambda entry: (entry.config_source != TOPIC_SOURCE, entry.name)),
            sources=SOURCE_NAMES,
            own_source=TOPIC_SOURCE,
        )

    @site.post("topics", ANY, "configs")
    async def alter_config(visit: Visit) -> HttpResponse:
        name, key, value = visit.names[0], visit.text("key"), visit.text("value")
        is_reset = visit.is_set("reset")
        change = (AlterOperation.DELETE, key, None) if is_reset else (AlterOperation.SET, key, value)
        await admin.alter_configs(ResourceType.TOPIC, name, [change])
        notice = f"{key} has its default again." if is_reset else f"{key} is {value} now."
        return site.done(notice, link("topics", name, "configs"))

    @site.post("topics", ANY, "delete")
    async def delete(visit: Visit) -> HttpResponse:
        name = visit.names[0]
        if visit.text("confirmation") != name:
            raise RefusedError("to delete the topic, type its name")
        await admin.delete_topics([name])
        return site.done(f"Topic {name} was deleted.", link("topics"))


async def _measured(sources: Sources, topics: list[TopicMetadata], paging: Paging | None = None) -> list[TopicRow]:
    """Return the rows of topics, with the offsets and sizes of at most `MOST_PARTITIONS_TO_MEASURE` partitions."""
    admin = sources.admin
    chosen = {topic.name: paging.cut(topic.partitions) if paging is not None else topic.partitions for topic in topics}
    places = [(name, state.index) for name, states in chosen.items() for state in states]
    led = [(name, state.index) for name, states in chosen.items() for state in states if state.leader is not None]
    led = led[:MOST_PARTITIONS_TO_MEASURE]
    starts = await admin.offsets_since(led, EARLIEST) if led else {}
    ends = await admin.offsets_since(led, LATEST) if led else {}
    sizes: defaultdict[tuple[str, int], int] = defaultdict(int)
    if places:
        directories = await admin.describe_log_dirs(places[:MOST_PARTITIONS_TO_MEASURE])
        for found in directories.values():
            for directory in found:
                for measured in directory.topics:
                    for part in measured.partitions:
                        place = measured.name, part.partition_index
                        sizes[place] = max(sizes[place], part.partition_size)
    return [
        TopicRow(
            topic,
            [
                PartitionRow(
                    state,
                    starts.get((topic.name, state.index)),
                    ends.get((topic.name, state.index)),
                    sizes.get((topic.name, state.index)),
                )
                for state in chosen[topic.name]
            ],
        )
        for topic in topics
    ]


def _configs(text: str) -> dict[str, str]:
    """Return the configurations in lines of KEY=VALUE. Raises RefusedError."""
    configs = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, equals, value = line.partition("=")
        if not equals:
            raise RefusedError(f"a configuration is written KEY=VALUE, not {line[:100]!r}")
        configs[key.strip()] = value.strip()
    return configs
