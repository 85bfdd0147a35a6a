"""`gregor pipeline mirror`: batches from one broker to another, exactly once, without decompression."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

import trio
from pyarrow import parquet

from gregor.client import Admin, Producer
from gregor.pipeline.errors import PipelineError
from gregor.pipeline.jobs import generate as generate_job
from gregor.pipeline.jobs import mirror as mirror_job
from gregor.pipeline.kafka import fetching
from gregor.pipeline.sink import batch_pipe, exact_copy
from tests.broker_process import BrokerProcess, running_broker
from tests.pipeline.archive_rows import make_topic, produce
from tests.pipeline.job_desk import run_job, run_tasks_here
from tests.pipeline.stored import contents, records_of, stored_batches


@pytest.fixture(autouse=True)
def _tasks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (mirror_job, generate_job):
        monkeypatch.setattr(module, "run_tasks", run_tasks_here)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Provide the cluster that is written to."""
    overrides = ("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")
    with running_broker(tmp_path_factory.mktemp("target"), *overrides) as broker:
        yield broker


def mirror(source: BrokerProcess, target: BrokerProcess, topics: str, *more: str) -> list[Any]:
    """Run the job; its table."""
    summary, _ = run_job("mirror", "--from", source.bootstrap, "--to", target.bootstrap, "--topics", topics, *more)
    return list(summary.rows)


def offsets_table(root: Path, topic: str, partition: int) -> list[tuple[int, ...]]:
    """Return its rows in order."""
    files = sorted((root / f"topic={topic}" / f"partition={partition}").glob("*.parquet"))
    return [tuple(row.values()) for path in files for row in parquet.ParquetFile(path).read().to_pylist()]


def test_batches_go_as_they_are(broker_process: BrokerProcess, target: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker_process, "as-is")
    produce(broker_process, "as-is", [b"v%d" % n for n in range(80)], batch_size=300, compression_type="zstd")
    table = mirror(broker_process, target, "as-is", "--offsets-map", str(tmp_path), "--transaction-bytes", "1000")
    assert [(*row[:5], row[6]) for row in table] == [("as-is", p, 0, 40, 40, 0) for p in (0, 1)]
    for partition in (0, 1):
        originals = stored_batches(broker_process, "as-is", partition)
        copies = stored_batches(target, "as-is", partition)
        assert [each[2:] for each in copies] == [each[2:] for each in originals]
        rows = offsets_table(tmp_path, "as-is", partition)
        assert rows[0][0] == 0
        assert rows[-1][1] == 40
        assert sum(row[3] for row in rows) == 40
        found = records_of(target, "as-is", partition)
        for source_from, source_until, target_from, records in rows:
            assert source_until - source_from == records
            at = {row["offset"]: row["value"] for row in found}
            for index in range(records):
                assert at[target_from + index] == records_of_value(source_from + index, partition)
    produce(broker_process, "as-is", [b"more"])
    assert [row[4] for row in mirror(broker_process, target, "as-is")] == [1, 0]


def records_of_value(offset: int, partition: int) -> bytes:
    """Return the value that `produce` gave that offset."""
    return b"v%d" % (2 * offset + partition)


def test_old_message_formats_and_committed_transactions_are_mirrored(
    broker_process: BrokerProcess, target: BrokerProcess
) -> None:
    for magic in (0, 1):
        command = ["--bootstrap-server", broker_process.bootstrap, "--topic", f"old-{magic}", "--records", "300"]
        run_job("generate", *command, "--format", str(magic), "--codec", "gzip", "--value-bytes", "50")
    make_topic(broker_process, "old-decided", 1)

    async def send() -> None:
        async with Producer(broker_process.bootstrap, transactional_id="mirrored") as producer:
            for value in (b"yes", b"no", b"yes"):
                with contextlib.suppress(ValueError):
                    async with producer.transaction():
                        await producer.send("old-decided", value)
                        await producer.flush()
                        if value == b"no":
                            raise ValueError("changed its mind")

    trio.run(send)
    mirror(broker_process, target, "old-.*")
    for topic, partitions in (("old-0", 3), ("old-1", 3), ("old-decided", 1)):
        for partition in range(partitions):
            originals = records_of(broker_process, topic, partition)
            assert originals
            assert contents(records_of(target, topic, partition)) == contents(originals)


class CrashError(Exception):
    """An error at the point where the task is killed."""


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_a_mirror_that_is_killed_continues_without_lost_or_duplicate_records(
    broker_process: BrokerProcess, target: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    topic = f"killed-{moment.split()[0]}"
    make_topic(broker_process, topic, 1)
    produce(broker_process, topic, [b"v%d" % n for n in range(200)], 1, batch_size=300)
    append = exact_copy.ExactCopy.append
    calls = 0

    async def append_and_die(copy: exact_copy.ExactCopy, batches: list[bytes], next_offset: int, note: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 3:
            return await append(copy, batches, next_offset, note)
        if moment == "before the commit":
            await append(copy, batches, next_offset, _die)
        else:
            await append(copy, batches, next_offset, note)
        raise CrashError

    monkeypatch.setattr(exact_copy.ExactCopy, "append", append_and_die)
    for _ in range(30):
        with contextlib.suppress(CrashError):
            mirror(broker_process, target, topic, "--transaction-bytes", "500", "--offsets-map", str(tmp_path))
            break
    assert calls > 6
    assert contents(records_of(target, topic, 0)) == contents(records_of(broker_process, topic, 0))
    rows = offsets_table(tmp_path, topic, 0)
    assert [row[0] for row in rows[1:]] == [row[1] for row in rows[:-1]]
    assert (rows[0][0], rows[-1][1], sum(row[3] for row in rows)) == (0, 200, 200)


def _die(offsets: list[int]) -> None:
    raise CrashError


def test_topics_that_cannot_be_mirrored_are_refused_with_a_reason(
    broker_process: BrokerProcess, target: BrokerProcess
) -> None:
    make_topic(broker_process, "wide", 2)
    make_topic(target, "wide", 3)
    with pytest.raises(PipelineError, match="wide has 3 partitions at the target and 2 at the source"):
        mirror(broker_process, target, "wide")
    make_topic(broker_process, "anew", 1)
    produce(broker_process, "anew", [b"1"], 1)
    mirror(broker_process, target, "anew")

    make_anew(broker_process, "anew", [b"2", b"3"])
    with pytest.raises(PipelineError, match="choose another --name"):
        mirror(broker_process, target, "anew")
    with pytest.raises(PipelineError, match=r"no topic at .* whose whole name matches nothing-at-all"):
        mirror(broker_process, target, "nothing-at-all")


def test_a_cluster_is_not_mirrored_to_itself(broker_process: BrokerProcess) -> None:
    make_topic(broker_process, "mine", 1)
    produce(broker_process, "mine", [b"1"], 1)
    for _ in range(2):
        with pytest.raises(PipelineError, match="the source and the target are the same cluster, "):
            mirror(broker_process, broker_process, "mine")
    assert len(records_of(broker_process, "mine", 0)) == 1


def make_anew(broker: BrokerProcess, topic: str, values: list[bytes]) -> None:
    """Delete the topic of one partition, and make another one of that name."""

    async def remove() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.delete_topics([topic])

    trio.run(remove)
    make_topic(broker, topic, 1)
    if values:
        produce(broker, topic, values, 1)


def test_a_source_topic_recreated_during_the_mirror_is_an_error(
    broker_process: BrokerProcess, target: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(broker_process, "swapped", 1)
    produce(broker_process, "swapped", [b"first %d" % n for n in range(200)], 1, batch_size=300)
    monkeypatch.setattr(fetching, "FIRST_FETCH_BYTES", 1000)
    monkeypatch.setattr(fetching, "GROWTH", 1)
    append = exact_copy.ExactCopy.append
    calls = 0

    async def append_and_swap(copy: exact_copy.ExactCopy, batches: list[bytes], next_offset: int, note: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            others = [b"second %d" % n for n in range(300)]
            await trio.to_thread.run_sync(make_anew, broker_process, "swapped", others)
        return await append(copy, batches, next_offset, note)

    monkeypatch.setattr(exact_copy.ExactCopy, "append", append_and_swap)
    with pytest.raises(PipelineError, match=r"swapped-0 offset \d+: the source's topic was deleted and recreated"):
        mirror(broker_process, target, "swapped", "--transaction-bytes", "500")
    copied = [row["value"] for row in records_of(target, "swapped", 0)]
    assert 0 < len(copied) < 200
    assert copied == [b"first %d" % n for n in range(len(copied))]
    with pytest.raises(PipelineError, match="choose another --name"):
        mirror(broker_process, target, "swapped")


def test_a_target_topic_recreated_during_the_mirror_is_an_error_and_then_refilled(
    broker_process: BrokerProcess, target: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(broker_process, "emptied", 1)
    produce(broker_process, "emptied", [b"%d" % n for n in range(200)], 1, batch_size=300)
    append = batch_pipe.BatchPipe.append
    calls = 0

    def append_and_swap(pipe: batch_pipe.BatchPipe, batches: list[bytes], identity: tuple[int, int]) -> list[int]:
        nonlocal calls
        calls += 1
        if calls == 2:
            make_anew(target, "emptied", [])
        return append(pipe, batches, identity)

    with monkeypatch.context() as patch:
        patch.setattr(batch_pipe.BatchPipe, "append", append_and_swap)
        with pytest.raises(PipelineError, match=r"emptied-0 offset \d+: the target's topic was deleted and recreated"):
            mirror(broker_process, target, "emptied", "--transaction-bytes", "500")
    assert records_of(target, "emptied", 0) == []
    mirror(broker_process, target, "emptied")
    assert contents(records_of(target, "emptied", 0)) == contents(records_of(broker_process, "emptied", 0))


def test_a_batch_with_a_wrong_crc_is_an_error_and_is_not_mirrored(
    broker_process: BrokerProcess, target: BrokerProcess
) -> None:
    make_topic(broker_process, "damaged", 1)
    for value in (b"sound", b"soon to be damaged"):
        produce(broker_process, "damaged", [value], 1)
    segment = broker_process.directory / "logs" / "damaged-0" / f"{0:020d}.log"
    stored = bytearray(segment.read_bytes())
    stored[stored.index(b"soon")] ^= 1
    with segment.open("r+b") as file:
        file.write(stored)
    with pytest.raises(PipelineError, match=r"damaged-0 offset 1: .* wrong CRC"):
        mirror(broker_process, target, "damaged")
    assert records_of(target, "damaged", 0) == []
