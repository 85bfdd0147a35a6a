"""Creates and deletes topics from plain functions, whatever event loop the test itself runs in."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio

from ..client.admin import Admin, NewTopic
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


def _run(bootstrap_servers: str, work: Callable[[Admin], Awaitable[None]]) -> None:
    """Run work with an admin client in a thread, as this thread may already run an event loop."""
    failures: list[BaseException] = []

    async def main() -> None:
        async with Admin(bootstrap_servers) as admin:
            await work(admin)

    def run() -> None:
        try:
            trio.run(main)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, name="gregor-topics")
    thread.start()
    thread.join()
    if failures:
        failure = failures[0]
        while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
            failure = failure.exceptions[0]
        raise failure
