"""An answer that comes later: a parked request waits for it, whoever can answer keeps it."""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

from .client_connection import ClientGoneError, Hangup

Answer = TypeVar("Answer")


class Promise(Generic[Answer]):
    """Kept once, by `keep`; awaited by the task that serves the request."""

    __slots__ = ("_answer", "_kept")

    def __init__(self) -> None:
        self._answer: Answer | None = None
        self._kept = trio.Event()

    @property
    def is_kept(self) -> bool:
        """Whether the answer is there."""
        return self._kept.is_set()

    @property
    def answer(self) -> Answer:
        """The answer; to be asked for once it is there."""
        assert self._kept.is_set()
        return self._answer  # type: ignore[return-value]

    def keep(self, answer: Answer) -> None:
        """Give the answer. Only the first one counts."""
        if not self._kept.is_set():
            self._answer = answer
            self._kept.set()

    async def wait(self) -> Answer:
        """The answer, as soon as it is there."""
        await self._kept.wait()
        return self.answer

    async def wait_or_hangup(self, hangup: Hangup) -> Answer:
        """The answer, as soon as it is there. Raises ClientGoneError if the client goes away before."""
        if not self.is_kept:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_with_hangup, hangup, nursery.cancel_scope)
                await self._kept.wait()
                nursery.cancel_scope.cancel()
        if not self.is_kept:
            raise ClientGoneError("hung up while its request was parked")
        return self.answer

    @staticmethod
    async def _end_with_hangup(hangup: Hangup, scope: trio.CancelScope) -> None:
        await hangup.wait()
        scope.cancel()


def kept(answer: Answer) -> Promise[Answer]:
    """An answer that is there at once."""
    promise: Promise[Answer] = Promise()
    promise.keep(answer)
    return promise
