"""Progress and lag of mirror and replay while their tasks run, by the offsets committed at the target."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

from gregor.pipeline.archive import writing
from gregor.pipeline.errors import PipelineError
from gregor.pipeline.jobs import mirror, replay
from gregor.pipeline.jobs.desk import Progress
from gregor.pipeline.metrics import copy_progress
from tests.broker_process import BrokerProcess, running_broker
from tests.pipeline import job_desk
from tests.pipeline.archive_rows import arguments, make_topic, produce
from tests.pipeline.job_desk import run_job, run_tasks_once

LIMIT_S = 60.0


class Board:
    """A record of the progress that a job reported while it ran."""

    def __init__(self) -> None:
        self.positions: list[tuple[str, int, int, int]] = []
        self.written: list[tuple[str, int, int, int]] = []
        self.bars: list[tuple[int, str]] = []
        self.shown = 0

    def position(self, topic: str, partition: int, next_offset: int, end_offset: int) -> None:
        """Take a position, see `jobs.desk.Metrics`."""
        self.positions.append((topic, partition, next_offset, end_offset))

    def done(self, topic: str, partition: int, *, records: int, size_bytes: int, dead_letters: int = 0) -> None:
        """Take records that were written, see `jobs.desk.Metrics`."""
        self.written.append((topic, partition, records, size_bytes))


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Board:
    """Return the board of the desk of the next jobs, whose tasks wait until their positions are on it."""
    board = Board()

    class WatchedDesk(job_desk.TestDesk):
        def __init__(self) -> None:
            super().__init__()
            self.metrics = board

        @contextmanager
        def progress(self, total: int, unit: str) -> Iterator[Progress]:
            board.bars.append((total, unit))

            def advance(done: int) -> None:
                assert 0 <= done <= total
                board.shown = done

            yield SimpleNamespace(advance=advance)

    def run_tasks(session: object, work: Sequence[Any], do: Callable[[Any], Any], progress: Progress) -> list[Any]:
        results = []
        for piece in work:
            results.append(do(piece))
            done_offsets = sum(board_end(each) for each in work[: len(results)])
            deadline = time.monotonic() + LIMIT_S
            while board.shown != done_offsets:
                assert time.monotonic() < deadline
                time.sleep(0.005)
        return results

    def board_end(piece: Any) -> int:
        return int(piece[0].until_offset if isinstance(piece, tuple) else piece.end_offset)

    monkeypatch.setattr(copy_progress, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(writing, "run_tasks", run_tasks_once)
    for module in (mirror, replay):
        monkeypatch.setattr(module, "run_tasks", run_tasks)
    monkeypatch.setattr(job_desk, "TestDesk", WatchedDesk)
    return board


def test_positions_of_a_mirror_are_told_while_other_partitions_are_copied(
    broker_process: BrokerProcess, tmp_path: Path, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(broker_process, "watched")
    produce(broker_process, "watched", [b"v"] * 30)
    with running_broker(tmp_path / "target") as target:
        command = ["--from", broker_process.bootstrap, "--to", target.bootstrap, "--topics", "watched"]
        run_job("mirror", *command)
        assert board.bars == [(30, "offsets")]
        assert board.positions[:2] == [("watched", 0, 0, 15), ("watched", 1, 0, 15)]
        while_running = board.positions.index(("watched", 0, 15, 15))
        assert ("watched", 1, 0, 15) in board.positions[while_running:]
        assert [(records, size > 100) for _, _, records, size in board.written] == [(15, True)] * 2
        board.shown = 0
        # What was copied before is no part of the next run's progress.
        produce(broker_process, "watched", [b"w"] * 4)
        board.bars.clear()
        monkeypatch.setattr(mirror, "run_tasks", run_tasks_once)
        run_job("mirror", *command)
        assert board.bars == [(4, "offsets")]
        assert board.positions[-1] == ("watched", 1, 17, 17)
    with pytest.raises(PipelineError):
        run_job("mirror", *command)


def test_positions_of_a_replay_are_told_while_other_partitions_are_copied(
    broker_process: BrokerProcess, tmp_path: Path, board: Board
) -> None:
    make_topic(broker_process, "replayed")
    produce(broker_process, "replayed", [b"v"] * 30)
    run_job("archive", *arguments(broker_process, "replayed", tmp_path / "lake"))
    board.positions.clear()
    board.written.clear()
    command = ["--archive", str(tmp_path / "lake"), "--bootstrap-server", broker_process.bootstrap, "--prefix", "a-"]
    summary, _ = run_job("replay", *command)
    while_running = board.positions.index(("a-replayed", 0, 15, 15))
    assert ("a-replayed", 1, 0, 15) in board.positions[while_running:]
    assert board.positions[-1] == ("a-replayed", 1, 15, 15)
    assert summary.totals["bytes"] == sum(size for *_, size in board.written) > 15 * 2 * 10
