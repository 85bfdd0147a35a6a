"""Work in Python, distributed over Spark's tasks, with progress.

Each piece of work is a row of a data frame, and `mapInArrow` calls Python with it: so the plan also runs on Spark
Connect, which has no SparkContext.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .worker_process import prepare_worker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from .jobs.desk import Progress

Work = TypeVar("Work")
Result = TypeVar("Result")

LOOK_EVERY_S = 0.25
PIECES = "number BIGINT, piece BINARY"
"""The schema of pieces of work and of their results, both pickled."""


def run_tasks(
    session: SparkSession, work: Sequence[Work], do: Callable[[Work], Result], progress: Progress
) -> list[Result]:
    """Run `do` on each piece of work in a task of its own; return the results in the order of `work`.

    `do` and its results must be picklable. Progress counts pieces. Raises Spark's error when a piece has failed too
    often.
    """
    if not work:
        return []
    import pyarrow as pa
    from pyspark import cloudpickle

    pickled = [cloudpickle.dumps(piece) for piece in work]
    table = pa.table({"number": pa.array(range(len(work)), pa.int64()), "piece": pa.array(pickled, pa.binary())})
    pieces = session.createDataFrame(table)
    pieces = pieces.repartitionById(len(work), pieces["number"].cast("int"))
    done = pieces.mapInArrow(_Pieces(do), PIECES)
    found = _collected(session, done.collect, _progress_of(session, len(work), progress))
    results = {row.number: pickle.loads(row.piece) for row in found}  # noqa: S301
    return [results[number] for number in range(len(work))]


def context_of(session: SparkSession) -> SparkContext | None:
    """Return the context that runs tasks; None for a session of Spark Connect, which has none."""
    from pyspark.errors import PySparkAttributeError

    try:
        return session.sparkContext
    except PySparkAttributeError:
        return None


def parallel_tasks(session: SparkSession) -> int:
    """Return the number of tasks that Spark runs at a time, as far as it knows at its start."""
    context = context_of(session)
    if context is not None:
        return int(context.defaultParallelism)
    from pyspark.sql import functions

    # A range without a given number of partitions has the default number, which Spark Connect does not tell.
    return int(session.range(1 << 20).select(functions.spark_partition_id()).distinct().count())


class _Pieces(Generic[Work, Result]):
    """The function of a task: it does the pieces in its rows."""

    def __init__(self, do: Callable[[Work], Result]) -> None:
        self._do = do

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row with the result of each piece."""
        import pyarrow as pa
        from pyspark import cloudpickle

        prepare_worker()
        for batch in batches:
            for number, piece in zip(batch["number"], batch["piece"], strict=True):
                result = cloudpickle.dumps(self._do(pickle.loads(piece.as_py())))  # noqa: S301
                yield pa.RecordBatch.from_arrays([pa.array([number.as_py()]), pa.array([result])], ["number", "piece"])


def _collected(session: SparkSession, collect: Callable[[], list[Any]], watch: _Watch) -> list[Any]:
    """Collect in a thread; an interruption of this one ends the tasks."""
    from pyspark import InheritableThread

    tag = f"gregor-{id(watch)}"
    found: list[Any] = []
    failures: list[Exception] = []

    def run() -> None:
        session.addTag(tag)
        try:
            found.extend(watch.watched(collect))
        except Exception as failure:  # raised in the thread that waits
            failures.append(failure)
        finally:
            session.removeTag(tag)

    context = context_of(session)
    thread = threading.Thread(target=run) if context is None else InheritableThread(target=run, session=session)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(LOOK_EVERY_S)
            watch.look()
    except BaseException:
        session.interruptTag(tag)
        raise
    if failures:
        raise failures[0]
    return found


class _Watch:
    """A display of the tasks that are done, where Spark does not tell."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._total = total
        self._progress = progress

    def watched(self, collect: Callable[[], list[Any]]) -> list[Any]:
        """Call `collect` so that its tasks are counted."""
        return collect()

    def look(self) -> None:
        """Show the number of tasks that are done."""

    def show(self, done: int) -> None:
        """Show a number of tasks of the last stage and of the one that deals the pieces out, which is one task."""
        self._progress.advance(max(0, min(done - 1, self._total)))


class _ContextWatch(_Watch):
    """The display of a session with a SparkContext."""

    def __init__(self, context: SparkContext, total: int, progress: Progress) -> None:
        super().__init__(total, progress)
        self._context = context
        # The job group identifies its stages among others of this session.
        self._group = f"gregor-{id(self)}"

    def watched(self, collect: Callable[[], list[Any]]) -> list[Any]:
        self._context.setJobGroup(self._group, "pieces of work", interruptOnCancel=True)
        return collect()

    def look(self) -> None:
        tracker = self._context.statusTracker()
        stages = {
            stage
            for job in tracker.getJobIdsForGroup(self._group)
            if (info := tracker.getJobInfo(job))
            for stage in info.stageIds
        }
        self.show(sum(info.numCompletedTasks for stage in stages if (info := tracker.getStageInfo(stage))))


class _ConnectWatch(_Watch):
    """The display of a session of Spark Connect, which reports its progress to a function."""

    def __init__(self, session: SparkSession, total: int, progress: Progress) -> None:
        super().__init__(total, progress)
        self._session = session
        self._done = 0

    def watched(self, collect: Callable[[], list[Any]]) -> list[Any]:
        def count(stages: Iterable[Any] | None, **others: object) -> None:
            self._done = max(self._done, sum(stage.num_completed_tasks for stage in stages or ()))

        self._session.registerProgressHandler(count)
        try:
            return collect()
        finally:
            self._session.removeProgressHandler(count)

    def look(self) -> None:
        self.show(self._done)


def _progress_of(session: SparkSession, total: int, progress: Progress) -> _Watch:
    context = context_of(session)
    return _ConnectWatch(session, total, progress) if context is None else _ContextWatch(context, total, progress)
