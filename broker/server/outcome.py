"""The outcome of a request: its result, a pending operation, or a coroutine that needs a task to get the result."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from .client_connection import Hangup
from .pending import Pending

Result = TypeVar("Result")
Next = TypeVar("Next")

Outcome: TypeAlias = Result | Pending[Any] | Coroutine[Any, Any, Result]
"""A result; a `Pending` one, whose own outcome may again be a coroutine; or a coroutine for the own task of the
connection. (``Any``, as a type alias cannot refer to itself.)"""


WAITING = (Pending, Coroutine)
"""The outcomes that are not results."""


async def result_of(outcome: Outcome[Result], hangup: Hangup | None = None) -> Result:
    """Return the result of any outcome, in a task. Raises ClientGoneError as `Pending.wait`."""
    while isinstance(outcome, Pending):
        outcome = await outcome.wait(hangup)
    return await outcome if isinstance(outcome, Coroutine) else outcome


def then(
    outcome: Outcome[Any],
    step: Callable[[Any], Outcome[Next]],
    recover: Callable[[Exception], Outcome[Next]] | None = None,
) -> Outcome[Next]:
    """Return the outcome of ``step`` after the result of ``outcome``; an exception goes to ``recover`` or is raised."""
    if isinstance(outcome, Pending):
        return _then_later(outcome, step, recover)
    if isinstance(outcome, Coroutine):
        return _then_in_task(outcome, step, recover)
    return step(outcome)


def _then_later(
    first: Pending[Any],
    step: Callable[[Any], Outcome[Next]],
    recover: Callable[[Exception], Outcome[Next]] | None,
) -> Pending[Any]:
    following: Pending[Any] = Pending(ends_with_client=first.ends_with_client, on_cancel=first.cancel)

    def proceed() -> None:
        try:
            outcome = _continued(first, step, recover)
        except Exception as error:
            following.fail(error)
            return
        if isinstance(outcome, Pending):
            following.follow(outcome)
        else:
            following.complete(outcome)

    first.when_complete(proceed)
    return following


def _continued(
    first: Pending[Any],
    step: Callable[[Any], Outcome[Next]],
    recover: Callable[[Exception], Outcome[Next]] | None,
) -> Outcome[Next]:
    try:
        result = first.result()
    except Exception as error:
        if recover is None:
            raise
        return recover(error)
    return then(result, step, recover)


async def _then_in_task(
    outcome: Coroutine[Any, Any, Any],
    step: Callable[[Any], Outcome[Next]],
    recover: Callable[[Exception], Outcome[Next]] | None,
) -> Next:
    try:
        result = await outcome
    except Exception as error:
        if recover is None:
            raise
        return await result_of(recover(error))
    return await result_of(step(result))
