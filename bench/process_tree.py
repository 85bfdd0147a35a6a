"""The CPU seconds and memory of a process and all of its descendants."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
LOOK_EVERY_S = 0.1


class _Process(NamedTuple):
    pid: int
    parent: int
    ticks: int
    """The ticks of the process, and of its children that have ended and were waited for."""
    rss_bytes: int


def _tree(root: int) -> Iterator[_Process]:
    children: defaultdict[int, list[_Process]] = defaultdict(list)
    waiting: list[_Process] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                pages = int(fields[21])
                process = _Process(int(entry.name), int(fields[1]), sum(map(int, fields[11:15])), pages * PAGE_BYTES)
                children[process.parent].append(process)
                if process.pid == root:
                    waiting.append(process)
    while waiting:
        process = waiting.pop()
        waiting += children[process.pid]
        yield process


def cpu_seconds(root: int) -> float:
    """Return the user and system time so far of the process and its descendants, ended ones included."""
    return sum(process.ticks for process in _tree(root)) / TICKS_PER_SECOND


class MemoryWatch:
    """The result of `watched_memory`: `peak_bytes` is the largest observed sum of resident memory; shared pages count
    for each.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0


@contextmanager
def watched_memory(root: int) -> Iterator[MemoryWatch]:
    """Watch the memory of the process and its descendants during the context."""
    watch = MemoryWatch()
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_EVERY_S):
            watch.peak_bytes = max(watch.peak_bytes, sum(process.rss_bytes for process in _tree(root)))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()
