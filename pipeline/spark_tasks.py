"""Work in Python, distributed over Spark's tasks, with progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from .errors import PipelineError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from .jobs.desk import Progress

Work = TypeVar("Work")
Result = TypeVar("Result")

LOOK_EVERY_S = 0.25


def run_tasks(
    session: SparkSession, work: Sequence[Work], do: Callable[[Work], Result], progress: Progress
) -> list[Result]:
    """Run `do` on each piece of work in a task of its own; return the results in the order of `work`.

    `do` and its results must be picklable. Progress counts pieces. Raises Spark's error when a piece has failed too
    often, and PipelineError on Spark Connect.
    """
    if not work:
        return []
    context = context_of(session)
    pieces = context.parallelize(work, len(work))
    # The job group identifies its stages among others of this session.
    group = f"gregor-{threading.get_ident()}-{id(pieces)}"
    results: list[Result] = []
    failures: list[Exception] = []

    def collect() -> None:
        context.setJobGroup(group, "pieces of work", interruptOnCancel=True)
        try:
            results.extend(pieces.map(do).collect())
        except Exception as failure:  # raised in the thread that waits
            failures.append(failure)

    from pyspark import InheritableThread

    thread = InheritableThread(target=collect)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(LOOK_EVERY_S)
            progress.advance(_completed_tasks(context, group))
    except BaseException:
        context.cancelJobGroup(group)
        raise
    if failures:
        raise failures[0]
    return results


def context_of(session: SparkSession) -> SparkContext:
    """Return the context that runs tasks. Raises PipelineError for a session of Spark Connect, which has none."""
    from pyspark.errors import PySparkAttributeError

    try:
        return session.sparkContext
    except PySparkAttributeError as fault:
        raise PipelineError(
            "jobs run tasks through a SparkContext, which a session of Spark Connect does not have: unset SPARK_REMOTE "
            "and use --master or spark-submit"
        ) from fault


def _completed_tasks(context: object, group: str) -> int:
    tracker = context.statusTracker()  # type: ignore[attr-defined]
    done = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            stage_info = tracker.getStageInfo(stage)
            done += stage_info.numCompletedTasks if stage_info else 0
    return done
