"""The trio clients of `client` for blocking callers that have the WireSettings of a cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import trio

from ...client import Admin
from ...client.errors import ClientError
from ...protocol.errors import BrokerError
from ...protocol.topic_partition import AnyTopicPartition
from ..errors import PipelineError
from .wire import WireSettings

T = TypeVar("T")


def bootstrap_of(settings: WireSettings) -> str:
    """Return the bootstrap servers in the form that clients accept."""
    return ",".join(f"{host}:{port}" for host, port in settings.bootstrap)


def client_config(settings: WireSettings) -> dict[str, Any]:
    """Return the configuration for any of the clients."""
    return {
        "client_id": settings.client_id,
        "request_timeout_ms": int(settings.request_timeout_s * 1000),
        "security": settings.security,
    }


def run_client(what: str, work: Callable[..., Awaitable[T]], *arguments: object) -> T:
    """Run a coroutine in trio. Raises PipelineError that names `what` failed."""
    try:
        return trio.run(work, *arguments)
    except (BrokerError, ClientError) as fault:
        raise PipelineError(f"{what}: {fault}") from fault


def commit_positions(settings: WireSettings, group: str, positions: Mapping[AnyTopicPartition, int]) -> None:
    """Commit offsets for a group without members, for tools that show lag. Raises PipelineError."""

    async def commit() -> None:
        async with Admin(bootstrap_of(settings), **client_config(settings)) as admin:
            await admin.alter_group_offsets(group, dict(positions))

    run_client(f"group {group}", commit)
