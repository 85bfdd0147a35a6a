"""The creation of missing topics at a target.

Unless their settings say otherwise, these topics keep records for ever: otherwise retention would delete old records
at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...client import Admin
from ...client.admin import BROKER_DEFAULT, NewTopic
from ...protocol.errors import BrokerError, ErrorCode
from ..errors import OptionError
from .clients import bootstrap_of, client_config, run_client
from .wire import WireSettings


def make_topics(
    settings: WireSettings, partition_counts: Mapping[str, int], assignments: Sequence[str] = ()
) -> list[str]:
    """Create the missing topics, with these partition counts; return their names.

    `assignments` are settings as NAME=VALUE. Raises OptionError, PipelineError.
    """
    configs = {"retention.ms": "-1"}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise OptionError(f"--config takes NAME=VALUE, not {assignment!r}")
        configs[name] = value

    async def make() -> list[str]:
        made = []
        async with Admin(bootstrap_of(settings), **client_config(settings)) as admin:
            there = set(await admin.list_topics(include_internal=True))
            for name, count in partition_counts.items():
                if name in there:
                    continue
                try:
                    await admin.create_topics([NewTopic(name, count, BROKER_DEFAULT, configs)])
                except BrokerError as fault:
                    if fault.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                        raise
                else:
                    made.append(name)
        return made

    return run_client("making topics", make)
