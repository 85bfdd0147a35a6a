"""How a client's `async with` begins and ends, also where it is cancelled or a background task fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from gregor.client import Admin, Consumer, Producer
from gregor.client.lifetime import BackgroundTasks
from tests.free_ports import free_address

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
    # A stack of scopes that was left corrupt shows at the next nursery and at the next cancellation.
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


async def test_what_fails_at_the_start_closes_the_nursery_and_is_raised() -> None:
    before = open_nurseries()

    async def start_tasks(nursery: trio.Nursery) -> None:
        nursery.start_soon(trio.sleep_forever)
        raise ZeroDivisionError

    tasks = BackgroundTasks()
    with pytest.raises(ZeroDivisionError):
        await tasks.open(start_tasks)
    assert open_nurseries() == before
    await tasks.close()
