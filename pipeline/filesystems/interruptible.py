"""Calls into libraries that wait without looking at signals: Ctrl-C ends the wait, not the call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def interruptible(call: Callable[[], Answer]) -> Answer:
    """Return what `call` returns, or raise what it raises; in the main thread a KeyboardInterrupt does not wait for it.

    Python's handlers of signals run only in the main thread, so that the call is made in another one. After an
    interruption that thread goes on until its call returns or the process ends, like a process that was killed then.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    answers: list[Answer] = []
    faults: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as fault:  # raised in the thread that waits
            faults.append(fault)

    thread = threading.Thread(target=run, name="request to a store", daemon=True)
    thread.start()
    thread.join()
    if faults:
        raise faults[0]
    return answers[0]
