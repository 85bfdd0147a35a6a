"""Writes that must happen once, to stores whose answers may fail or get lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from .stores import StoreError

PAUSES_S = (0.1, 0.5, 2.0, 5.0)
"""The pauses between the attempts at a write, beside those that the store's own client makes."""
LIMIT_S = 180.0
"""The time after which nothing is tried again, where a store has no limit of its own."""

Answer = TypeVar("Answer")


def create_once(
    attempt: Callable[[], None], read: Callable[[], bytes], contents: bytes, name: str, limit_s: float = LIMIT_S
) -> None:
    """Call `attempt`, which creates a file of these contents, until it is known whether the file is there.

    An attempt whose answer says that the file exists, or that failed, may have written the file: the file's contents
    tell. Nothing is tried again after `limit_s`. Raises FileExistsError if the file is there with other contents,
    StoreError if the store keeps failing.
    """
    deadline = time.monotonic() + limit_s
    for pause_s in (*PAUSES_S, None):
        fault: StoreError | None = None
        try:
            attempt()
        except FileExistsError:
            pass
        except StoreError as error:
            fault = error
        else:
            return
        try:
            found = read()
        except (FileNotFoundError, StoreError) as error:
            fault = fault or StoreError(f"{name}: the store says both that it exists and {error}")
        else:
            if found != contents:
                raise FileExistsError(f"{name} exists with other contents")
            return
        if pause_s is None or time.monotonic() > deadline:
            raise fault
        time.sleep(pause_s)


def try_again(attempt: Callable[[], Answer], limit_s: float = LIMIT_S) -> Answer:
    """Return what `attempt`, which may be repeated, returns once it succeeds.

    Nothing is tried again after `limit_s`. Raises StoreError if the store keeps failing.
    """
    deadline = time.monotonic() + limit_s
    for pause_s in PAUSES_S:
        try:
            return attempt()
        except StoreError:
            if time.monotonic() > deadline:
                raise
            time.sleep(pause_s)
    return attempt()
