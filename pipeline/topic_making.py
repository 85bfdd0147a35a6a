"""Topics at a target, made where they are not there yet."""

from __future__ import annotations

from collections.abc import Mapping

from ..client import Admin
from ..client.admin import BROKER_DEFAULT, NewTopic
from ..protocol.errors import BrokerError, ErrorCode
from .clients import bootstrap_of, client_config, run_client
from .wire import WireSettings


def make_topics(
    settings: WireSettings, partition_counts: Mapping[str, int], configs: Mapping[str, str] | None = None
) -> list[str]:
    """Make the topics that are not there, with so many partitions; returns their names. Raises PipelineError."""

    async def make() -> list[str]:
        made = []
        async with Admin(bootstrap_of(settings), **client_config(settings)) as admin:
            there = set(await admin.list_topics(include_internal=True))
            for name, count in partition_counts.items():
                if name in there:
                    continue
                try:
                    await admin.create_topics([NewTopic(name, count, BROKER_DEFAULT, dict(configs or {}))])
                except BrokerError as fault:
                    if fault.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                        raise
                else:
                    made.append(name)
        return made

    return run_client("making topics", make)
