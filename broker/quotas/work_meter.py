"""Measurement of the time for which a request occupies the event loop, without waits.

Kafka measures the time of the threads that serve a request. Here one thread serves all requests, so each step of a
request is timed: its handler, and the steps of a coroutine from its resumption by the loop to its next wait.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class WorkMeter:
    """A sum of the steps of a request's work in nanoseconds, including the present one.

    As a context manager it times one step.
    """

    __slots__ = ("_finished_ns", "_resumed_ns")

    def __init__(self) -> None:
        self._finished_ns = 0
        self._resumed_ns: int | None = None

    @property
    def elapsed_ns(self) -> int:
        """The time so far, in nanoseconds."""
        present = 0 if self._resumed_ns is None else time.perf_counter_ns() - self._resumed_ns
        return self._finished_ns + present

    def __enter__(self) -> None:
        self.resumed()

    def __exit__(self, *_: object) -> None:
        self.paused()

    def resumed(self) -> None:
        """Start the time of a step."""
        self._resumed_ns = time.perf_counter_ns()

    def paused(self) -> None:
        """End the time of a step."""
        self._finished_ns = self.elapsed_ns
        self._resumed_ns = None


async def metered(work: Coroutine[Any, Any, T], meter: WorkMeter) -> T:
    """Await ``work`` and time its steps."""
    return await _steps(work, meter)


@coroutine
def _steps(work: Coroutine[Any, Any, T], meter: WorkMeter) -> Generator[Any, Any, T]:
    resume, argument = work.send, None
    while True:
        meter.resumed()
        try:
            awaited = resume(argument)
        except StopIteration as finished:
            result: T = finished.value
            return result
        finally:
            meter.paused()
        try:
            resume, argument = work.send, (yield awaited)
        except BaseException as error:
            resume, argument = work.throw, error
