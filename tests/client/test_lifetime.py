"""The start and end of a client's `async with`, also after a cancellation or a failed background task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest
import trio

from gregor.client import Admin, Consumer, Producer
from gregor.client.errors import ClientError, ClosedError
from gregor.client.lifetime import BackgroundTasks
from tests.broker_process import BrokerProcess
from tests.free_ports import free_address
from tests.waiting import PATIENCE_S

AnyClient = Admin | Consumer | Producer


def transactional_producer(bootstrap: str) -> Producer:
    return Producer(bootstrap, transactional_id="never-initialized")


CLIENTS = [Admin, Consumer, Producer, transactional_producer]


def open_nurseries() -> int:
    return len(trio.lowlevel.current_task().child_nurseries)


@pytest.mark.parametrize("make", CLIENTS)
async def test_a_client_entered_in_a_cancelled_scope_leaves_no_nursery(make: Callable[[str], AnyClient]) -> None:
    host, port = free_address()
    before = open_nurseries()
    with trio.CancelScope() as scope:
        scope.cancel()
        async with make(f"{host}:{port}"):
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert open_nurseries() == before
    # A corrupt stack of cancel scopes fails at the next nursery and at the next cancellation.
    with trio.move_on_after(0) as later:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
    assert later.cancelled_caught


async def test_a_producer_cancelled_while_it_initializes_leaves_no_nursery() -> None:
    host, port = free_address()
    before = open_nurseries()
    with trio.move_on_after(0.05) as scope:
        async with transactional_producer(f"{host}:{port}"):
            raise AssertionError("no broker has given it an identity")
    assert scope.cancelled_caught
    assert open_nurseries() == before


async def test_an_error_during_the_start_closes_the_nursery_and_is_raised() -> None:
    before = open_nurseries()

    async def start_tasks(nursery: trio.Nursery) -> None:
        nursery.start_soon(trio.sleep_forever)
        raise ZeroDivisionError

    tasks = BackgroundTasks()
    with pytest.raises(ZeroDivisionError):
        await tasks.open(start_tasks)
    assert open_nurseries() == before
    await tasks.close()


@pytest.mark.parametrize("make", [Admin, Consumer, Producer])
async def test_a_client_is_entered_once(make: Callable[[str], AnyClient], broker_process: BrokerProcess) -> None:
    before = open_nurseries()
    client = make(broker_process.bootstrap)
    async with client:
        with pytest.raises(ClientError, match="only once"):
            await client.__aenter__()
    assert open_nurseries() == before
    with pytest.raises(ClientError, match="only once"):
        await client.__aenter__()
    assert open_nurseries() == before


UNOPENED_CALLS: list[tuple[Callable[[str], AnyClient], Callable[[Any], Awaitable[object]]]] = [
    (Admin, lambda admin: admin.list_topics()),
    (Admin, lambda admin: admin.describe_cluster()),
    (Consumer, lambda consumer: consumer.poll()),
    (Consumer, lambda consumer: consumer.end_offsets([("t", 0)])),
    (Consumer, lambda consumer: consumer.topics()),
    (Consumer, lambda consumer: consumer.partitions_for("t")),
    (lambda servers: Consumer(servers, group_id="g"), lambda consumer: consumer.commit({("t", 0): 1})),
    (lambda servers: Consumer(servers, group_id="g"), lambda consumer: consumer.committed(("t", 0))),
    (Producer, lambda producer: producer.send("t", b"v")),
    (Producer, lambda producer: producer.partitions_for("t")),
    (
        lambda servers: Producer(servers, transactional_id=f"x-{uuid4()}"),
        lambda producer: producer.transaction().__aenter__(),
    ),
    (
        lambda servers: Producer(servers, transactional_id=f"x-{uuid4()}"),
        lambda producer: producer.send_offsets_to_transaction("g", {("t", 0): 1}),
    ),
]


@pytest.mark.parametrize(("make", "call"), UNOPENED_CALLS)
async def test_calls_on_a_client_that_is_not_open_raise_closed_error(
    make: Callable[[str], AnyClient], call: Callable[[Any], Awaitable[object]], broker_process: BrokerProcess
) -> None:
    client = make(broker_process.bootstrap)
    with trio.fail_after(PATIENCE_S):
        with pytest.raises(ClosedError, match="not open"):
            await call(client)
        async with client:
            pass
        with pytest.raises(ClosedError, match="not open"):
            await call(client)
