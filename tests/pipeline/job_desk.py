"""A desk for jobs under test, and tasks without Spark: pickled, run in this process, each perhaps twice."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from gregor.pipeline.jobs.desk import Metrics, NoMetrics, Progress, Summary


class TestDesk:
    """A desk that records its messages; its session has only the number of parallel tasks."""

    __test__ = False

    def __init__(self) -> None:
        self.said: list[str] = []
        self.metrics: Metrics = NoMetrics()

    def session(self, config: Mapping[str, str] | None = None) -> Any:
        """The attributes of a session that jobs use outside of `run_tasks`."""
        return SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))

    @contextlib.contextmanager
    def progress(self, total: int, unit: str) -> Iterator[Progress]:
        """Show no progress, but check that no more than the total is reported."""

        def advance(done: int) -> None:
            assert 0 <= done <= total

        yield SimpleNamespace(advance=advance)

    def say(self, line: str) -> None:
        """Add a line to `said`."""
        self.said.append(line)


def run_tasks_here(session: object, work: Sequence[Any], do: Callable[[Any], Any], progress: Progress) -> list[Any]:
    """Run tasks as `spark_tasks.run_tasks` does, each twice, as if the first attempt had been lost."""
    results = []
    for number, piece in enumerate(work, start=1):
        call, argument = pickle.loads(pickle.dumps((do, piece)))
        results.append(pickle.loads(pickle.dumps(call(argument))))
        call(argument)
        progress.advance(number)
    return results


def run_tasks_once(session: object, work: Sequence[Any], do: Callable[[Any], Any], progress: Progress) -> list[Any]:
    """Run tasks as `spark_tasks.run_tasks` does, one after the other."""
    return [do(piece) for piece in work]


def run_job(name: str, *arguments: str) -> tuple[Summary, TestDesk]:
    """Run a job as the command line would."""
    module = importlib.import_module(f"gregor.pipeline.jobs.{name}")
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    desk = TestDesk()
    return module.run(parser.parse_args(arguments), desk), desk
