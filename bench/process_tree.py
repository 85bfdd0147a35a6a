"""The CPU seconds and memory of a process and its descendants, by part: the driver, the JVM, Python's workers."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
LOOK_EVERY_S = 0.25


class Part(StrEnum):
    """A part of the tree of processes that a program with Spark is."""

    DRIVER = "driver"
    """The program itself."""
    JVM = "jvm"
    WORKERS = "workers"
    """All others: Python's workers, and processes that plan for the driver."""


class _Process(NamedTuple):
    pid: int
    parent: int
    part: Part
    own_ticks: int
    ended_ticks: int
    """The ticks of children that have ended and were waited for."""
    rss_bytes: int


def _tree(root: int) -> Iterator[_Process]:
    children: defaultdict[int, list[_Process]] = defaultdict(list)
    waiting: list[_Process] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields, pid = (entry / "stat").read_text().rpartition(")")[2].split(), int(entry.name)
                # Not by the name of its first thread: a JVM forks under the name of the thread that does.
                is_java = (entry / "exe").readlink().name == "java"
                part = Part.DRIVER if pid == root else Part.JVM if is_java else Part.WORKERS
                own, ended = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
                process = _Process(pid, int(fields[1]), part, own, ended, int(fields[21]) * PAGE_BYTES)
                children[process.parent].append(process)
                if process.pid == root:
                    waiting.append(process)
    while waiting:
        process = waiting.pop()
        waiting += children[process.pid]
        yield process


def cpu_by_part(root: int) -> dict[Part, float]:
    """Return the user and system seconds so far of each part; children that have ended count for the workers."""
    ticks = dict.fromkeys(Part, 0)
    for process in _tree(root):
        ticks[process.part] += process.own_ticks
        ticks[Part.WORKERS] += process.ended_ticks
    return {part: count / TICKS_PER_SECOND for part, count in ticks.items()}


def cpu_seconds(root: int) -> float:
    """Return the user and system time so far of the process and its descendants, ended ones included."""
    return sum(cpu_by_part(root).values())


class MemoryWatch:
    """The result of `watched_memory`: the largest observed sums of memory, of all processes and of each part.

    Of the JVM it is the resident memory, of other processes the proportional one (PSS): a page that workers share,
    as they are forked, counts once in all.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.peak_by_part = dict.fromkeys(Part, 0)

    def look(self, root: int) -> None:
        """Add the memory that the processes have now."""
        now = dict.fromkeys(Part, 0)
        for process in _tree(root):
            # A PSS walks all pages, which takes milliseconds in a JVM, and the JVM shares none.
            # Two JVMs are one that is about to start another program: they share their memory.
            if process.part is Part.JVM:
                now[Part.JVM] = max(now[Part.JVM], process.rss_bytes)
            else:
                now[process.part] += _pss_bytes(process)
        self.peak_bytes = max(self.peak_bytes, sum(now.values()))
        self.peak_by_part = {part: max(peak, now[part]) for part, peak in self.peak_by_part.items()}


def _pss_bytes(process: _Process) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return process.rss_bytes


@contextmanager
def watched_memory(root: int) -> Iterator[MemoryWatch]:
    """Watch the memory of the process and its descendants during the context."""
    watch = MemoryWatch()
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_EVERY_S):
            watch.look(root)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()
