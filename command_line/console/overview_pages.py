"""The overview: the brokers, what needs attention, and plots of the broker that runs the console."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from ...broker.http.messages import HttpResponse
from ...client.errors import ConnectionLostError
from ..client_verdicts import is_refused
from .plots import BINARY, DECIMAL, plot
from .site import Site, Visit
from .units import byte_text, short_count

if TYPE_CHECKING:
    from ...client.wire.cluster import TopicMetadata
    from .history import History
    from .sources import Sources

MS_PER_S = 1000


class NamedPlot(NamedTuple):
    """A plot with its title and its newest value."""

    title: str
    now: str
    image: Markup


class Health(NamedTuple):
    """Counts of what the cluster holds, and of what needs attention."""

    topics: int
    partitions: int
    groups: int
    without_leader: int
    under_replicated: int
    clients: int
    refused_clients: int


def add_overview_pages(site: Site, sources: Sources) -> None:
    """Add the overview to the site."""
    admin = sources.admin

    @site.get()
    async def overview(visit: Visit) -> HttpResponse:
        cluster = await admin.describe_cluster()
        groups = await admin.list_groups()
        return site.page(
            "overview.html",
            visit,
            cluster=cluster,
            health=_health(await admin.describe_topics(), len(groups), await _refused(sources)),
            plots=plots(sources.history) if sources.history is not None else [],
        )


async def _refused(sources: Sources) -> tuple[int, int]:
    """Return the numbers of clients and of those that Kafka 4 refuses; zeros from other brokers than Gregor."""
    try:
        answers = await sources.admin.describe_clients()
    except ConnectionLostError:
        return 0, 0
    clients = [client for answer in answers for client in answer.clients]
    return len(clients), sum(map(is_refused, clients))


def _health(topics: list[TopicMetadata], group_count: int, clients: tuple[int, int]) -> Health:
    partitions = [partition for topic in topics for partition in topic.partitions]
    return Health(
        topics=sum(not topic.is_internal for topic in topics),
        partitions=len(partitions),
        groups=group_count,
        without_leader=sum(partition.leader is None for partition in partitions),
        under_replicated=sum(len(partition.in_sync_replicas) < len(partition.replicas) for partition in partitions),
        clients=clients[0],
        refused_clients=clients[1],
    )


def plots(history: History) -> list[NamedPlot]:
    """Return the plots of a broker's rates and memory."""
    series = (
        ("Messages in per second", history.rates(lambda sample: sample.messages_in), short_count),
        ("Bytes in per second", history.rates(lambda sample: sample.bytes_in), byte_text),
        ("Bytes out per second", history.rates(lambda sample: sample.bytes_out), byte_text),
        ("Requests per second", history.rates(lambda sample: sample.requests), short_count),
        ("Resident memory", history.values(lambda sample: sample.resident_bytes), byte_text),
        ("CPU, ms per second", history.rates(lambda sample: sample.cpu_s * MS_PER_S), short_count),
        ("Converted records per second", history.rates(lambda sample: sample.converted_records), short_count),
        (
            "Conversion CPU, ms per second",
            history.rates(lambda sample: sample.conversion_cpu_s * MS_PER_S),
            short_count,
        ),
    )
    return [
        NamedPlot(title, unit(values[-1]) if values else "-", plot(title, values, unit, base=_base(unit)))
        for title, values, unit in series
    ]


def _base(unit: Callable[[float], str]) -> int:
    return BINARY if unit is byte_text else DECIMAL
