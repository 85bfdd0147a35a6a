"""`gregor pipeline replay` and `restore`: an archive becomes topics again, once."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

import trio

from gregor.client import Producer
from gregor.pipeline.archive import compaction, replaying, writing
from gregor.pipeline.errors import PipelineError
from gregor.pipeline.jobs import replay as replay_job
from gregor.pipeline.jobs import restore as restore_job
from gregor.pipeline.sink import exact_copy
from tests.broker_process import BrokerProcess
from tests.pipeline.archive_rows import arguments, end_offsets, make_topic, produce
from tests.pipeline.job_desk import run_job, run_tasks_here
from tests.pipeline.stored import contents, records_of, stored_batches


@pytest.fixture(autouse=True)
def _tasks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (writing, compaction, replay_job, restore_job):
        monkeypatch.setattr(module, "run_tasks", run_tasks_here)


def replay(broker: BrokerProcess, root: Path, *more: str) -> list[Any]:
    """Run the job; its table."""
    summary, _ = run_job("replay", "--bootstrap-server", broker.bootstrap, "--archive", str(root), *more)
    return list(summary.rows)


def test_a_replay_keeps_partition_order_times_and_headers(
    broker_process: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "TRANSACTION_ROWS", 7)
    make_topic(broker_process, "played")
    produce(broker_process, "played", [None if n % 9 == 0 else b"v%d" % n for n in range(60)], batch_size=300)
    run_job("archive", *arguments(broker_process, "played", tmp_path, "--max-bytes", "1500", "--compact"))
    replay(broker_process, tmp_path, "--prefix", "again-", "--codec", "lz4")
    for partition in (0, 1):
        originals = records_of(broker_process, "played", partition)
        assert len(originals) == 30
        copies = records_of(broker_process, "again-played", partition)
        assert contents(copies) == contents(originals)
        assert {row["codec"] for row in copies} == {"lz4"}
    ends = end_offsets(broker_process, "again-played")
    assert replay(broker_process, tmp_path, "--prefix", "again-") == [("again-played", p, 30, 0) for p in (0, 1)]
    assert end_offsets(broker_process, "again-played") == ends
    produce(broker_process, "played", [b"more"])
    run_job("archive", *arguments(broker_process, "played", tmp_path))
    assert replay(broker_process, tmp_path, "--prefix", "again-")[0] == ("again-played", 0, 30, 1)
    assert contents(records_of(broker_process, "again-played", 0))[-1][1] == b"more"
    with pytest.raises(PipelineError, match="choose another --name"):
        replay(broker_process, tmp_path, "--prefix", "again-", "--since", "1970-01-03")


def test_a_replay_can_be_limited_to_a_time_range(broker_process: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker_process, "timed", 1)
    produce(broker_process, "timed", [b"v%d" % n for n in range(50)], 1)
    run_job("archive", *arguments(broker_process, "timed", tmp_path))
    command = ["--prefix", "some-", "--since", "1970-01-03", "--until", "1970-01-05T00:00:00+00:00", "--rate", "1e9"]
    replay(broker_process, tmp_path, *command)
    values = [row["value"] for row in records_of(broker_process, "some-timed", 0)]
    assert values == [b"v%d" % n for n in range(10, 30)]


class CrashError(Exception):
    """An error at the point where the task is killed."""


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_a_replay_that_is_killed_continues_without_lost_or_duplicate_records(
    broker_process: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.setattr(replaying, "TRANSACTION_ROWS", 5)
    topic = f"torn-{moment.split()[0]}"
    make_topic(broker_process, topic, 1)
    produce(broker_process, topic, [b"v%d" % n for n in range(40)], 1)
    run_job("archive", *arguments(broker_process, topic, tmp_path))
    append = exact_copy.ExactCopy.append
    calls = 0

    async def append_and_die(copy: exact_copy.ExactCopy, batches: list[bytes], next_offset: int) -> list[int]:
        nonlocal calls
        calls += 1
        if calls % 3:
            return await append(copy, batches, next_offset)
        if moment == "before the commit":
            await append(copy, batches, next_offset, _die)
        else:
            await append(copy, batches, next_offset)
        raise CrashError

    monkeypatch.setattr(exact_copy.ExactCopy, "append", append_and_die)
    for _ in range(20):
        with contextlib.suppress(CrashError):
            replay(broker_process, tmp_path, "--prefix", "again-")
            break
    copies = records_of(broker_process, f"again-{topic}", 0)
    assert [row["value"] for row in copies] == [b"v%d" % n for n in range(40)]


def _die(offsets: list[int]) -> None:
    raise CrashError


def test_archives_that_cannot_be_replayed_are_refused_with_a_reason(
    broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "refused", 2)
    produce(broker_process, "refused", [b"1", b"2"])
    run_job("archive", *arguments(broker_process, "refused", tmp_path / "rows"))
    run_job("archive", *arguments(broker_process, "refused", tmp_path / "batches", "--values", "batches"))
    with pytest.raises(PipelineError, match="restore"):
        replay(broker_process, tmp_path / "batches")
    with pytest.raises(PipelineError, match="is not an archive"):
        replay(broker_process, tmp_path)
    with pytest.raises(PipelineError, match="has no topic other"):
        replay(broker_process, tmp_path / "rows", "--topics", "other")
    make_topic(broker_process, "less-refused", 1)
    with pytest.raises(PipelineError, match="the archive has rows of partition 1"):
        replay(broker_process, tmp_path / "rows", "--prefix", "less-")


def test_restored_topics_have_the_archived_batches_unchanged(broker_process: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker_process, "precious")
    produce(broker_process, "precious", [b"v%d" % n for n in range(60)], batch_size=300, compression_type="gzip")

    async def send() -> None:
        async with Producer(broker_process.bootstrap, transactional_id="precious") as producer:
            for value in (b"yes", b"no", b"yes"):
                try:
                    async with producer.transaction():
                        await producer.send("precious", value, partition=0)
                        await producer.flush()
                        if value == b"no":
                            raise ValueError("changed its mind")
                except ValueError:
                    pass

    trio.run(send)
    run_job("archive", *arguments(broker_process, "precious", tmp_path, "--values", "batches", "--max-bytes", "1000"))
    command = ["--bootstrap-server", broker_process.bootstrap, "--archive", str(tmp_path), "--prefix", "restored-"]
    summary, _ = run_job("restore", *command)
    assert [row[:4] for row in summary.rows] == [("restored-precious", 0, 0, 35), ("restored-precious", 1, 0, 30)]
    for partition in (0, 1):
        originals = stored_batches(broker_process, "precious", partition)
        assert stored_batches(broker_process, "restored-precious", partition) == originals
    produce(broker_process, "precious", [b"more"])
    run_job("archive", *arguments(broker_process, "precious", tmp_path, "--compact"))
    run_job("restore", *command)
    assert [row["offset"] for row in records_of(broker_process, "restored-precious", 0)][-1] == 36
