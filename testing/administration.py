"""Changes of a running broker by plain functions, whatever event loop the test itself runs in."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio

from ..broker.config.fault_keys import RULE_PREFIX
from ..broker.faults.rule import SPARED_CLIENT_ID
from ..client.admin import Admin, NewTopic
from ..command_line.fault_rules import CLOCK, clear_faults, set_clock_offset, set_rule
from ..command_line.reset import reset
from ..protocol.errors import BrokerError, ErrorCode


def create_topic(bootstrap_servers: str, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    """Create a topic. Raises BrokerError, ClientError."""

    async def work(admin: Admin) -> None:
        await admin.create_topics([NewTopic(name, partitions, configs=configs)])

    _run(bootstrap_servers, work)


def delete_topics(bootstrap_servers: str, names: Sequence[str]) -> None:
    """Delete topics, except those that a test has deleted itself. Raises BrokerError, ClientError."""

    async def work(admin: Admin) -> None:
        for name in names:
            try:
                await admin.delete_topics([name])
            except BrokerError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise

    if names:
        _run(bootstrap_servers, work)


def reset_broker(bootstrap_servers: str, *, recreates: bool) -> None:
    """Delete all topics and groups. Raises UsageError for groups that have members, BrokerError, ClientError."""

    async def work(admin: Admin) -> None:
        await reset(admin, recreates=recreates)

    _run(bootstrap_servers, work)


def set_fault(bootstrap_servers: str, name: str, rule: str) -> None:
    """Set a fault rule. Raises FaultRuleError for a rule that cannot be read, BrokerError, ClientError."""

    async def work(admin: Admin) -> None:
        await set_rule(admin, name, rule)

    _run(bootstrap_servers, work)


def clear_fault(bootstrap_servers: str, name: str) -> None:
    """Remove a fault rule, if it is there. Raises BrokerError, ClientError."""

    async def work(admin: Admin) -> None:
        await clear_faults(admin, [RULE_PREFIX + name])

    _run(bootstrap_servers, work)


def shift_clock(bootstrap_servers: str, offset_ms: int) -> None:
    """Shift the broker's clock; 0 sets it right. Raises BrokerError, ClientError."""

    async def work(admin: Admin) -> None:
        if offset_ms:
            await set_clock_offset(admin, offset_ms)
        else:
            await clear_faults(admin, [CLOCK])

    _run(bootstrap_servers, work)


def _run(bootstrap_servers: str, work: Callable[[Admin], Awaitable[None]]) -> None:
    """Run work with an admin client in a thread, as this thread may already run an event loop."""
    failures: list[BaseException] = []

    async def main() -> None:
        # Fault rules spare this client id: what a test prepares and removes is not what it tests.
        async with Admin(bootstrap_servers, **{"client.id": SPARED_CLIENT_ID}) as admin:
            await work(admin)

    def run() -> None:
        try:
            trio.run(main)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, name="gregor-administration")
    thread.start()
    thread.join()
    if failures:
        failure = failures[0]
        while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
            failure = failure.exceptions[0]
        raise failure
