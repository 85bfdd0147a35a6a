"""Back-pressure by `buffer.memory`: bounded, fair, and safe to cancel."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gregor.client.errors import RecordTooLargeError
from gregor.client.producer.buffer_memory import BufferMemory


async def test_waiting_reservations_are_granted_in_order() -> None:
    memory = BufferMemory(100)
    await memory.reserve(90)
    order: list[int] = []

    async def take(size: int) -> None:
        await memory.reserve(size)
        order.append(size)

    async with trio.open_nursery() as nursery:
        for size in (60, 20, 5):
            nursery.start_soon(take, size)
            await wait_all_tasks_blocked()
        assert memory.is_exhausted
        assert not memory.try_reserve(5), "a later caller does not overtake those that wait"
        memory.release(40)
        await wait_all_tasks_blocked()
        assert order == [], "smaller requests wait behind the first"
        memory.release(20)
        await wait_all_tasks_blocked()
        assert order == [60]
        memory.release(30)
    assert sorted(order) == [5, 20, 60]
    assert memory.used_bytes == 85


async def test_a_cancelled_wait_leaks_nothing() -> None:
    memory = BufferMemory(100)
    await memory.reserve(100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(memory.reserve, 100)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert not memory.is_exhausted
    memory.release(100)
    assert memory.used_bytes == 0


async def test_smaller_reservations_proceed_when_a_larger_one_is_cancelled() -> None:
    memory = BufferMemory(100)
    await memory.reserve(50)
    async with trio.open_nursery() as nursery:
        giant = trio.CancelScope()

        async def wait_for_giant() -> None:
            with giant:
                await memory.reserve(100)

        nursery.start_soon(wait_for_giant)
        await wait_all_tasks_blocked()
        nursery.start_soon(memory.reserve, 10)
        await wait_all_tasks_blocked()
        giant.cancel()
    assert memory.used_bytes == 60


async def test_a_reservation_larger_than_the_memory_is_refused() -> None:
    with pytest.raises(RecordTooLargeError):
        await BufferMemory(100).reserve(101)
