"""Topics of unusual contents through all jobs: archive, compact, audit, replay, restore, mirror, stats, backfill."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

import trio

from gregor.client import Admin, Producer
from gregor.pipeline.archive import compaction, writing
from gregor.pipeline.errors import PipelineError
from gregor.pipeline.jobs import archive as archive_job
from gregor.pipeline.jobs import audit, generate, mirror, passes, replay, restore
from gregor.protocol.records import v2
from gregor.protocol.records.record import Header, Record
from tests.broker_process import BrokerProcess, running_broker
from tests.pipeline.archive_rows import arguments, end_offsets, rows_of
from tests.pipeline.job_desk import run_job, run_tasks_once
from tests.pipeline.stored import contents, records_of
from tests.pipeline.topics import delete_topic, fill, make_topic, transact

TIME_MS = 1_700_000_000_000
LARGE_BYTES = 10_000_000
LIMIT_S = 60.0
OVERRIDES = (
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "message.max.bytes=30000000",
    "log.cleaner.backoff.ms=100",
)


@pytest.fixture(autouse=True)
def _tasks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (writing, compaction, replay, restore, mirror, audit, passes, generate):
        monkeypatch.setattr(module, "run_tasks", run_tasks_once)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """Provide a source and a target that take large records."""
    with (
        running_broker(tmp_path_factory.mktemp("source"), *OVERRIDES) as source,
        running_broker(tmp_path_factory.mktemp("target"), *OVERRIDES) as target,
    ):
        yield source, target


def send(broker: BrokerProcess, topic: str, *batches: list[Record]) -> None:
    """Append batches as they are."""

    async def produce() -> None:
        async with Producer(broker.bootstrap, max_request_size=3 * LARGE_BYTES) as producer:
            for records in batches:
                await producer.send_batch(topic, 0, v2.build_batch(records))

    trio.run(produce)


def fill_with_nulls(broker: BrokerProcess, topic: str) -> None:
    """Null and empty keys and values, headers with null values and duplicate and empty keys, aborted records."""
    make_topic(broker.bootstrap, topic, 2)
    headers = (Header(b"a", b"1"), Header(b"a", b"2"), Header(b"n", None), Header(b"", b""))
    pairs = [(None, None), (b"", b""), (b"k", None), (None, b"v"), (b"\xff\xfe", b"\x00\xff")]
    records = [
        Record(index, TIME_MS + index, key, value, headers[: index % 5]) for index, (key, value) in enumerate(pairs)
    ]
    send(broker, topic, records)
    transact(broker.bootstrap, topic, range(5), commits=False)
    transact(broker.bootstrap, topic, range(3), commits=True)


def fill_with_aborted(broker: BrokerProcess, topic: str) -> None:
    """Aborted records only."""
    make_topic(broker.bootstrap, topic, 1)
    transact(broker.bootstrap, topic, range(5), commits=False)


def fill_with_large(broker: BrokerProcess, topic: str) -> None:
    """Records of 10 MB around a small one."""
    make_topic(broker.bootstrap, topic, 1, max_message_bytes=str(2 * LARGE_BYTES))
    large = random.Random(1).randbytes(LARGE_BYTES)
    send(broker, topic, *([Record(0, TIME_MS, b"k", value)] for value in (large, b"small", large)))


def fill_with_gaps(broker: BrokerProcess, topic: str) -> None:
    """Offsets that compaction has removed, within batches and between them."""
    configs = {"cleanup_policy": "compact", "segment_bytes": "1000", "min_cleanable_dirty_ratio": "0.01"}
    make_topic(broker.bootstrap, topic, 1, **configs)
    keys = [*range(8), *range(0, 8, 3), *range(100, 140)]
    records = [Record(0, TIME_MS + number, b"%d" % key, b"%d" % number) for number, key in enumerate(keys)]
    batches = [records[:8], *([record] for record in records[8:])]
    send(broker, topic, *([record._replace(offset=at) for at, record in enumerate(batch)] for batch in batches))
    deadline = time.monotonic() + LIMIT_S
    while len(records_of(broker, topic, 0)) == len(records):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def fill_with(magic: int, codec: str) -> Callable[[BrokerProcess, str], None]:
    """Return a function that fills a topic with message sets of an old format."""

    def fill_old(broker: BrokerProcess, topic: str) -> None:
        command = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--partitions", "1", "--records", "45"]
        run_job("generate", *command, "--format", str(magic), "--codec", codec, "--batch-records", "7")

    return fill_old


KINDS: dict[str, Callable[[BrokerProcess, str], None]] = {
    "empty": lambda broker, topic: make_topic(broker.bootstrap, topic, 3),
    "aborted": fill_with_aborted,
    "nulls": fill_with_nulls,
    "large": fill_with_large,
    "gaps": fill_with_gaps,
    "v0": fill_with(0, "none"),
    "v0 in gzip": fill_with(0, "gzip"),
    "v1 in lz4": fill_with(1, "lz4"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_job_copies_a_topic_of_unusual_contents(
    clusters: tuple[BrokerProcess, BrokerProcess], tmp_path: Path, kind: str
) -> None:
    source, target = clusters
    topic = kind.replace(" ", "-")
    KINDS[kind](source, topic)
    partitions = range(len(end_offsets(source, topic)))
    originals = [contents(records_of(source, topic, partition)) for partition in partitions]
    count = sum(map(len, originals))
    assert bool(count) is (kind not in ("empty", "aborted"))

    def assert_copied(broker: BrokerProcess, name: str) -> None:
        if count:
            assert [contents(records_of(broker, name, partition)) for partition in partitions] == originals

    rows, stored, logged = tmp_path / "rows", tmp_path / "stored", tmp_path / "logged"
    here, there = ["--bootstrap-server", source.bootstrap], ["--bootstrap-server", target.bootstrap]
    for root, values in ((rows, "raw"), (stored, "batches")):
        run_job("archive", *arguments(source, topic, root, "--values", values))
        run_job("archive", *arguments(source, topic, root, "--compact"))
    logs = ["--log-dir", str(source.directory / "logs"), "--topics", topic]
    run_job("backfill", *logs, "--archive", str(logged), "--format", "parquet")
    assert len(rows_of(rows)) == len(rows_of(logged)) == count
    for against in (["--against-bootstrap-server", source.bootstrap], ["--against-archive", str(logged)]):
        assert run_job("audit", "--archive", str(rows), *against)[0].is_clean
    run_job("replay", *here, "--archive", str(rows), "--prefix", "again-")
    assert_copied(source, f"again-{topic}")
    run_job("restore", *there, "--archive", str(stored), "--prefix", "restored-")
    assert_copied(target, f"restored-{topic}")
    run_job("mirror", "--from", source.bootstrap, "--to", target.bootstrap, "--topics", topic)
    assert_copied(target, topic)
    for place in (["--topics", topic, *here], logs):
        assert run_job("audit", *place)[0].is_clean
        run_job("stats", *place, "--compression")


def test_partitions_that_are_added_while_an_archive_follows_are_archived_replayed_and_mirrored(
    clusters: tuple[BrokerProcess, BrokerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = clusters
    make_topic(source.bootstrap, "growing", 1)
    fill(source.bootstrap, "growing", 20)
    copy = ["--from", source.bootstrap, "--to", target.bootstrap, "--topics", "growing"]
    run_job("mirror", *copy)

    def grow() -> None:
        async def add() -> None:
            async with Admin(source.bootstrap) as admin:
                await admin.create_partitions("growing", 3)

        trio.run(add)
        fill(source.bootstrap, "growing", 20, partition=2, first=100)

    def recreate() -> None:
        delete_topic(source.bootstrap, "growing")
        make_topic(source.bootstrap, "growing", 3)

    follow(monkeypatch, grow)
    command = arguments(source, "growing", tmp_path, "--follow")
    run_job("archive", *command)
    assert [(row["partition"], row["offset"]) for row in rows_of(tmp_path)] == [
        (p, offset) for p in (0, 2) for offset in range(20)
    ]
    run_job("replay", "--bootstrap-server", source.bootstrap, "--archive", str(tmp_path), "--prefix", "again-")
    run_job("mirror", *copy)
    for broker, topic in ((source, "again-growing"), (target, "growing")):
        assert [len(records_of(broker, topic, partition)) for partition in range(3)] == [20, 0, 20]
    follow(monkeypatch, recreate)
    with pytest.raises(PipelineError, match=r"topic growing has id .* it was made again"):
        run_job("archive", *command)
    follow(monkeypatch, lambda: delete_topic(source.bootstrap, "growing"))
    root = tmp_path / "another"
    with pytest.raises(PipelineError, match="topic growing does not exist"):
        run_job("archive", *arguments(source, "growing", root, "--follow"))


def test_an_archive_that_is_interrupted_before_its_first_round_does_not_say_that_all_is_archived(
    clusters: tuple[BrokerProcess, BrokerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _ = clusters
    make_topic(source.bootstrap, "interrupted", 1)
    fill(source.bootstrap, "interrupted", 5)

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(writing, "run_tasks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_job("archive", *arguments(source, "interrupted", tmp_path, "--follow"))


def follow(monkeypatch: pytest.MonkeyPatch, between: Callable[[], None]) -> None:
    """Let `--follow` do two rounds, with something between them, and then interrupt it."""
    rounds = iter([between])

    def sleep(seconds: float) -> None:
        step = next(rounds, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(archive_job, "time", SimpleNamespace(sleep=sleep))
