"""The metrics of a gateway: its clients, and what Kafka 4 refuses of them; the memory of conversions; the process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..broker.monitoring.client_families import client_families, request_families
from ..broker.monitoring.listener_families import listener_families
from ..broker.monitoring.metrics import NO_LABELS, Family
from ..broker.monitoring.process_families import process_families
from ..broker.server.listener_activity import ListenerActivity
from .fetching.buffer_memory import BufferMemory
from .sessions import Sessions
from .upstream import Upstream


def gateway_families(
    sessions: Sessions, listeners: Mapping[str, ListenerActivity], upstream: Upstream, memory: BufferMemory
) -> Iterator[Family]:
    """Yield every metric, family by family."""
    yield from request_families(sessions)
    yield from client_families(sessions)
    yield from listener_families(listeners)
    yield Family("gregor_gateway_upstream_brokers", [(NO_LABELS, len(upstream.brokers))])
    yield Family("gregor_gateway_buffer_memory_bytes", [(NO_LABELS, memory.size_bytes)])
    yield Family("gregor_gateway_buffer_memory_used_bytes", [(NO_LABELS, memory.used_bytes)])
    yield Family("gregor_gateway_buffer_memory_waiting_fetches", [(NO_LABELS, memory.waiting_count)])
    yield from process_families()
