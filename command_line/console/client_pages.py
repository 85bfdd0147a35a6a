"""Clients: their API versions, what Kafka 4 would refuse them, and what converting records for them costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...broker.faults.rule import SPARED_CLIENT_ID
from ...broker.http.messages import HttpResponse
from ...client.errors import ConnectionLostError
from ...protocol.apis import AnyApiKey, api_key, api_name
from ...protocol.kafka_4_floor import is_deprecated
from ..client_verdicts import client_verdict, is_refused
from .paging import Paging
from .site import Site, Visit

if TYPE_CHECKING:
    from ...protocol.messages.describe_clients import DescribedClient
    from .sources import Sources

NS_PER_MS = 1_000_000
MICROS_PER_MS = 1000


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A client with the verdict of Kafka 4."""

    client: DescribedClient
    used: list[tuple[AnyApiKey, int]]

    @property
    def is_refused(self) -> bool:
        """Whether Kafka 4 would disconnect the client."""
        return is_refused(self.client)

    @property
    def verdict(self) -> str:
        """The sentence of `gregor clients` about the client."""
        return client_verdict(self.client)

    @property
    def request_count(self) -> int:
        """The number of requests so far."""
        return sum(used.request_count for used in self.client.api_versions)

    @property
    def versions(self) -> list[tuple[str, int, int, bool]]:
        """The API, the version, the count of requests, and whether Kafka 4 refuses that version."""
        return sorted(
            (api_name(key), version, used.request_count, is_deprecated(key, version))
            for (key, version), used in zip(self.used, self.client.api_versions, strict=True)
        )


@dataclass(frozen=True, slots=True)
class TopicCost:
    """The cost of converting a topic's records for old consumers since the broker started."""

    topic: str
    record_count: int
    stored_bytes: int
    cpu_ms: float


def add_client_pages(site: Site, sources: Sources) -> None:
    """Add the page about clients to the site."""

    @site.get("clients")
    async def list_clients(visit: Visit) -> HttpResponse:
        wanted, only_refused = visit.text("filter").lower(), visit.is_set("refused")
        try:
            answers = await sources.admin.describe_clients()
        except ConnectionLostError:
            return site.page("no_clients.html", visit)
        rows = [row for answer in answers for row in map(_row, answer.clients) if _is_listed(row)]
        refused_count = sum(row.is_refused for row in rows)
        rows = [
            row
            for row in rows
            if (row.is_refused or not only_refused) and wanted in f"{row.client.client_id} {row.client.host}".lower()
        ]
        rows.sort(key=lambda row: (not row.is_refused, row.client.client_id, row.client.host))
        paging = Paging(visit.number("page", 1, least=1), len(rows))
        return site.page(
            "clients.html",
            visit,
            rows=paging.cut(rows),
            paging=paging,
            refused_count=refused_count,
            forgotten=sum(answer.forgotten_clients for answer in answers),
            costs=_costs(sources),
            micros_per_ms=MICROS_PER_MS,
            fields={"filter": visit.text("filter"), "refused": "1" if only_refused else ""},
        )


def _row(client: DescribedClient) -> ClientRow:
    return ClientRow(client, [(api_key(used.api_key), used.api_version) for used in client.api_versions])


def _is_listed(row: ClientRow) -> bool:
    """Return whether a client is not the console itself, which has the client id of `gregor faults`."""
    return row.client.client_id != SPARED_CLIENT_ID


def _costs(sources: Sources) -> list[TopicCost]:
    """Return the topics whose records this broker converted, the most expensive first."""
    if sources.services is None:
        return []
    costs = [
        TopicCost(name, cost.record_count, cost.stored_bytes, cost.cpu_ns / NS_PER_MS)
        for name, counters in sources.services.metrics.topics.items()
        if (cost := counters.fetch_conversion).record_count
    ]
    return sorted(costs, key=lambda cost: -cost.cpu_ms)[:50]
