"""The settings of a Python process of Spark, made once by its first task; Spark keeps the process for further tasks."""

from __future__ import annotations

import gc
from functools import cache


def prepare_worker() -> None:
    """Exempt the objects of imported modules from garbage collection, if this is a task of Spark.

    PySpark collects all garbage after each task, which visits these objects every time: 20 ms of CPU, more than a
    small task needs for anything else. Objects are freed as before when the last reference to them goes; only cycles
    of objects that existed before a process's first task are not.
    """
    if is_task():
        _freeze_once()


def is_task() -> bool:
    """Return whether this process runs a task of Spark now."""
    from pyspark import TaskContext

    return TaskContext.get() is not None


@cache
def _freeze_once() -> None:
    gc.freeze()
