"""A pending answer for a task: the task of the request waits for it, and another task completes it."""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

from .client_connection import ClientGoneError, Hangup

Answer = TypeVar("Answer")


class Promise(Generic[Answer]):
    """A pending answer, completed once by `keep`, for which the task of the request waits."""

    __slots__ = ("_answer", "_kept")

    def __init__(self) -> None:
        self._answer: Answer | None = None
        self._kept = trio.Event()

    @property
    def is_kept(self) -> bool:
        """Whether the answer is complete."""
        return self._kept.is_set()

    @property
    def answer(self) -> Answer:
        """The answer; to be read only once it is complete."""
        assert self._kept.is_set()
        return self._answer  # type: ignore[return-value]

    def keep(self, answer: Answer) -> None:
        """Complete the answer. Only the first call counts."""
        if not self._kept.is_set():
            self._answer = answer
            self._kept.set()

    async def wait(self) -> Answer:
        """Wait for the answer and return it."""
        await self._kept.wait()
        return self.answer

    async def wait_or_hangup(self, hangup: Hangup) -> Answer:
        """Wait for the answer and return it. Raises ClientGoneError if the client disconnects first."""
        if not self.is_kept:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_with_hangup, hangup, nursery.cancel_scope)
                await self._kept.wait()
                nursery.cancel_scope.cancel()
        if not self.is_kept:
            raise ClientGoneError("disconnected while its request was pending")
        return self.answer

    @staticmethod
    async def _end_with_hangup(hangup: Hangup, scope: trio.CancelScope) -> None:
        await hangup.wait()
        scope.cancel()


def kept(answer: Answer) -> Promise[Answer]:
    """Return a promise that is already complete."""
    promise: Promise[Answer] = Promise()
    promise.keep(answer)
    return promise
