"""Pending operations and outcomes: completed once, failed, cancelled, combined and continued."""

from __future__ import annotations

import gc
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gregor.broker.server.client_connection import ClientGoneError
from gregor.broker.server.outcome import Outcome, result_of, then
from gregor.broker.server.pending import Pending, all_completed, completed


def test_only_the_first_completion_counts() -> None:
    pending: Pending[int] = Pending()
    calls: list[int] = []
    pending.when_complete(lambda: calls.append(pending.result()))
    pending.complete(1)
    pending.complete(2)
    pending.fail(ValueError("too late"))
    assert (calls, pending.result()) == ([1], 1)
    pending.when_complete(lambda: calls.append(pending.result()))
    assert calls == [1, 1]


def test_a_failure_is_raised() -> None:
    pending: Pending[int] = Pending()
    pending.fail(ValueError("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        pending.result()


def test_a_cancelled_operation_does_not_call_its_callbacks() -> None:
    given_up: list[str] = []
    pending: Pending[int] = Pending(on_cancel=lambda: given_up.append("x"))
    pending.when_complete(lambda: given_up.append("called"))
    pending.cancel()
    pending.cancel()
    pending.complete(1)
    assert given_up == ["x"]
    done: Pending[int] = Pending(on_cancel=lambda: given_up.append("done"))
    done.complete(1)
    done.cancel()
    assert given_up == ["x"]


async def test_a_task_waits_for_a_pending_operation() -> None:
    pending: Pending[int] = Pending()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pending.wait)
        await wait_all_tasks_blocked()
        pending.complete(1)
    assert await pending.wait() == 1


@pytest.mark.parametrize("ends_with_client", [True, False])
async def test_a_waiting_task_ends_with_its_client_only_if_the_operation_does(ends_with_client: bool) -> None:
    pending: Pending[int] = Pending(ends_with_client=ends_with_client)
    hangup, outcomes = trio.Event(), list[Any]()

    async def wait() -> None:
        try:
            outcomes.append(await pending.wait(hangup))
        except ClientGoneError:
            outcomes.append("gone")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        hangup.set()
        await wait_all_tasks_blocked()
        pending.complete(1)
    assert outcomes == ["gone" if ends_with_client else 1]


async def test_cancelling_a_waiting_task_cancels_its_operation() -> None:
    given_up = trio.Event()
    pending: Pending[int] = Pending(on_cancel=given_up.set)
    with trio.move_on_after(0):
        await pending.wait()
    assert given_up.is_set()


def test_all_completed_waits_for_every_operation_and_raises_a_failure() -> None:
    first, second = Pending[int](), Pending[int]()
    together = all_completed([first, completed(2), second])
    second.complete(3)
    assert not together.is_complete
    first.complete(1)
    assert together.result() == [1, 2, 3]
    assert all_completed([]).result() == []
    failing = all_completed([completed(1), lost := Pending[int]()])
    lost.fail(ValueError("lost"))
    with pytest.raises(ValueError, match="lost"):
        failing.result()


def test_cancelling_all_completed_cancels_every_operation() -> None:
    given_up: list[int] = []
    all_completed([Pending[int](on_cancel=partial(given_up.append, index)) for index in (1, 2)]).cancel()
    assert given_up == [1, 2]


def doubled(value: int) -> int:
    if value < 0:
        raise ValueError(value)
    return 2 * value


async def soon(value: int) -> int:
    await trio.lowlevel.checkpoint()
    return value


def outcome_of(kind: str, value: int) -> Outcome[int]:
    match kind:
        case "result":
            return value
        case "pending":
            return completed(value)
        case "coroutine":
            return soon(value)
        case _:
            return completed(soon(value))


KINDS = ["result", "pending", "coroutine", "pending coroutine"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("next_kind", KINDS)
async def test_an_outcome_of_any_kind_is_continued(kind: str, next_kind: str) -> None:
    following = then(outcome_of(kind, 2), lambda value: outcome_of(next_kind, value + 1))
    assert await result_of(then(following, doubled)) == 6


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("recovers", [False, True])
async def test_then_passes_a_failure_on_or_recovers_from_it(kind: str, recovers: bool) -> None:
    failing = then(outcome_of(kind, -1), doubled)
    following: Outcome[int] = then(failing, doubled, (lambda error: 7) if recovers else None)
    if recovers:
        assert await result_of(following) == 7
    else:
        with pytest.raises(ValueError, match="-1"):
            await result_of(following)


def test_cancelling_a_continuation_cancels_the_operation_that_it_waits_for() -> None:
    given_up: list[str] = []
    first: Pending[int] = Pending(ends_with_client=True, on_cancel=lambda: given_up.append("first"))
    second: Pending[int] = Pending(on_cancel=lambda: given_up.append("second"))
    following: Outcome[int] = then(first, lambda _: second)
    assert isinstance(following, Pending)
    assert following.ends_with_client
    first.complete(1)
    following.cancel()
    assert given_up == ["second"]


@pytest.mark.parametrize("is_failing", [False, True])
def test_a_completed_chain_leaves_no_garbage(is_failing: bool) -> None:
    def run() -> None:
        first: Pending[int] = Pending(on_cancel=lambda: None)
        following: Outcome[int] = then(then(first.map(doubled), doubled), doubled)
        assert isinstance(following, Pending)
        first.complete(-1 if is_failing else 1)
        with suppress(ValueError):
            following.result()

    run()
    gc.collect()
    gc.disable()
    try:
        run()
        assert gc.collect() == 0
    finally:
        gc.enable()
