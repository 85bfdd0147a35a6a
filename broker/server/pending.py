"""A pending operation: an answer that comes later, such as one that waits for replicas, for records or for a group.

Kafka's DelayedOperation. The operation belongs to the part of the broker that completes it, which also enforces its
deadline. Nobody waits in a task: the completion calls the one callback, which the connection of the client sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import trio

from .client_connection import ClientGoneError, Hangup

Answer = TypeVar("Answer")
Next = TypeVar("Next")


class Pending(Generic[Answer]):
    """An answer that is completed or failed once, by `complete` or `fail`, or given up by `cancel`."""

    __slots__ = ("_answer", "_callback", "_error", "_on_cancel", "ends_with_client", "is_complete")

    def __init__(self, *, ends_with_client: bool = False, on_cancel: Callable[[], None] | None = None) -> None:
        """Create a pending answer.

        With ``ends_with_client`` a client that closes its side of the connection is not answered; without it the client
        still gets the answer (a producer may close its side after its last request). ``on_cancel`` is called if nobody
        can receive the answer any more.
        """
        self.is_complete = False
        self.ends_with_client = ends_with_client
        self._answer: Answer | None = None
        self._error: Exception | None = None
        self._callback: Callable[[], None] | None = None
        self._on_cancel = on_cancel

    def complete(self, answer: Answer) -> None:
        """Complete the answer. Only the first call of `complete` and `fail` counts."""
        if not self.is_complete:
            self._answer = answer
            self._finish()

    def fail(self, error: Exception) -> None:
        """Complete the answer with an exception, which `result` raises."""
        if not self.is_complete:
            self._error = error
            # The callback's frames refer to this one, and the exception's traceback may refer to them: a cycle.
            del error
            self._finish()

    def map(self, step: Callable[[Answer], Next]) -> Pending[Next]:
        """Return a pending answer that ``step`` makes of this one; an exception of ``step`` fails the new one."""
        following: Pending[Next] = Pending(ends_with_client=self.ends_with_client, on_cancel=self.cancel)

        def finish() -> None:
            try:
                following.complete(step(self.result()))
            except Exception as error:
                following.fail(error)

        self.when_complete(finish)
        return following

    def follow(self, other: Pending[Answer]) -> None:
        """Complete or fail as ``other`` does."""

        def finish() -> None:
            try:
                self.complete(other.result())
            except Exception as error:
                self.fail(error)

        self._on_cancel = other.cancel
        other.when_complete(finish)

    def _finish(self) -> None:
        self.is_complete = True
        self._on_cancel = None
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def cancel(self) -> None:
        """Give the answer up, since its client has gone; do nothing if it is complete."""
        self._callback = None
        on_cancel, self._on_cancel = self._on_cancel, None
        if on_cancel is not None:
            on_cancel()

    def when_complete(self, callback: Callable[[], None]) -> None:
        """Call ``callback``, at once if the answer is complete. There is one callback: a second one replaces it."""
        if self.is_complete:
            callback()
        else:
            self._callback = callback

    def result(self) -> Answer:
        """Return the answer of a complete operation. Raises the exception of a failed one, which is raised once."""
        assert self.is_complete
        error, self._error = self._error, None
        if error is None:
            return self._answer  # type: ignore[return-value]
        try:
            raise error
        finally:
            # The exception's traceback has this frame: the two would form a reference cycle.
            del error

    async def wait(self, hangup: Hangup | None = None) -> Answer:
        """Wait in a task and return the answer. Raises as `result`; ClientGoneError if the client disconnects first."""
        if not self.is_complete:
            try:
                await self._wait(hangup if self.ends_with_client else None)
            finally:
                if not self.is_complete:
                    self.cancel()
        return self.result()

    async def _wait(self, hangup: Hangup | None) -> None:
        done = trio.Event()
        self.when_complete(done.set)
        if hangup is None:
            await done.wait()
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_after, hangup, nursery.cancel_scope)
            await done.wait()
            nursery.cancel_scope.cancel()
        if not self.is_complete:
            raise ClientGoneError("disconnected while its request was pending")


async def _cancel_after(hangup: Hangup, scope: trio.CancelScope) -> None:
    await hangup.wait()
    scope.cancel()


def completed(answer: Answer) -> Pending[Answer]:
    """Return a pending answer that is complete."""
    pending: Pending[Answer] = Pending()
    pending.complete(answer)
    return pending


def all_completed(operations: Sequence[Pending[Answer]]) -> Pending[list[Answer]]:
    """Return a pending list of the answers of all ``operations``, in their order; it fails as the first failed one."""
    missing = sum(not operation.is_complete for operation in operations)

    def cancel() -> None:
        for operation in operations:
            operation.cancel()

    together: Pending[list[Answer]] = Pending(on_cancel=cancel)

    def finish() -> None:
        try:
            together.complete([operation.result() for operation in operations])
        except Exception as error:
            together.fail(error)

    def count_down() -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            finish()

    for operation in operations:
        if not operation.is_complete:
            operation.when_complete(count_down)
    if not missing:
        finish()
    return together
