"""Jobs with input that they cannot use: the error names the place, and incomplete work has no effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

import gregor.client
from gregor.client import Admin, Producer
from gregor.pipeline.archive import compaction, writing
from gregor.pipeline.archive.manifest import Manifest, ManifestError
from gregor.pipeline.errors import DamagedLogError, DataLossError, PipelineError
from gregor.pipeline.jobs import mirror as mirror_job
from gregor.pipeline.jobs import replay as replay_job
from gregor.pipeline.jobs import restore as restore_job
from gregor.pipeline.kafka import cluster_view, fetching, topic_making
from gregor.pipeline.kafka.wire import Wire, WireSettings
from gregor.pipeline.sink import exact_copy
from gregor.protocol.messages.fetch import FetchResponse
from gregor.protocol.messages.metadata import MetadataResponse
from tests.broker_process import BrokerProcess, running_broker
from tests.pipeline import topics
from tests.pipeline.archive_rows import arguments, end_offsets, plain, rows_of
from tests.pipeline.job_desk import run_job, run_tasks_once
from tests.pipeline.stored import records_of
from tests.pipeline.topics import delete_records, delete_topic, make_topic

RECORDS = 200
DAMAGED_AT = 0.6
"""Share of the segment before the damage."""
OVERRIDES = ("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")


@pytest.fixture(autouse=True)
def _tasks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (writing, compaction, replay_job, restore_job, mirror_job):
        monkeypatch.setattr(module, "run_tasks", run_tasks_once)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time for which jobs wait for brokers that cannot be reached."""
    monkeypatch.setattr(cluster_view, "PATIENCE_S", 2.0)
    monkeypatch.setattr(fetching, "DEFAULT_POLL_TIMEOUT_MS", 2000)
    monkeypatch.setattr(exact_copy, "PAUSE_S", 0.01)
    monkeypatch.setattr(exact_copy, "Producer", partial(Producer, max_block_ms=2000))
    for module in (exact_copy, topic_making, gregor.client):
        monkeypatch.setattr(module, "Admin", partial(Admin, default_api_timeout_ms=2000))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Provide another cluster."""
    with running_broker(tmp_path_factory.mktemp("target"), *OVERRIDES) as broker:
        yield broker


def fill(broker: BrokerProcess, topic: str, count: int = RECORDS) -> None:
    """Append to the topic's partition, in batches of some records."""
    topics.fill(broker.bootstrap, topic, count)


def archive(broker: BrokerProcess, topic: str, root: Path, *more: str) -> list[Any]:
    """Run the job; its table."""
    return list(run_job("archive", *arguments(broker, topic, root, *more))[0].rows)


def backfill(broker: BrokerProcess, topic: str, root: Path, *more: str) -> list[Any]:
    """Run the job; its table."""
    logs = ["--log-dir", str(broker.directory / "logs"), "--topics", topic, "--archive", str(root)]
    return list(run_job("backfill", *logs, *plain(root), *more)[0].rows)


def mirror(source: BrokerProcess, target: BrokerProcess, topic: str, *more: str) -> list[Any]:
    """Run the job in small transactions; its table."""
    command = ["--from", source.bootstrap, "--to", target.bootstrap, "--topics", topic, "--transaction-bytes", "900"]
    return list(run_job("mirror", *command, *more)[0].rows)


def replay(broker: BrokerProcess, root: Path, *more: str) -> list[Any]:
    """Run the job; its table."""
    command = ["--bootstrap-server", broker.bootstrap, "--archive", str(root), "--prefix", "again-"]
    return list(run_job("replay", *command, *more)[0].rows)


def segment_of(broker: BrokerProcess, topic: str) -> Path:
    """Return the only segment of the topic's only partition."""
    (path,) = (broker.directory / "logs" / f"{topic}-0").glob("*.log")
    return path


def flip(path: Path) -> None:
    """Change a bit somewhere behind the middle; done twice, that is mended."""
    with path.open("r+b") as file:
        at = int(path.stat().st_size * DAMAGED_AT)
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


# --- damage ---


@pytest.mark.parametrize("values", ["raw", "batches"])
@pytest.mark.parametrize("job", [archive, backfill])
def test_a_damaged_batch_is_not_archived(
    broker_process: BrokerProcess, tmp_path: Path, job: Callable[..., list[Any]], values: str
) -> None:
    topic = f"damaged-{job.__name__}-{values}"
    make_topic(broker_process.bootstrap, topic)
    fill(broker_process, topic)
    flip(segment_of(broker_process, topic))
    command = ["--values", values, "--max-bytes", "2000"]
    with pytest.raises(DamagedLogError, match=rf"^{topic}-0 offset 1[0-4]\d: "):
        job(broker_process, topic, tmp_path, *command)
    reached = Manifest(tmp_path).positions().get((topic, 0), 0)
    assert len(rows_of(tmp_path)) == reached or values == "batches"
    assert reached < 150
    flip(segment_of(broker_process, topic))
    job(broker_process, topic, tmp_path, *command)
    key = "offset" if values == "raw" else "lastOffset"
    offsets = [row[key] for row in rows_of(tmp_path)]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == RECORDS - 1
    assert values == "batches" or len(offsets) == RECORDS


def test_a_damaged_batch_is_not_mirrored(broker_process: BrokerProcess, target: BrokerProcess) -> None:
    make_topic(broker_process.bootstrap, "damaged")
    fill(broker_process, "damaged")
    flip(segment_of(broker_process, "damaged"))
    with pytest.raises(DamagedLogError, match=r"^damaged-0 offset 1[0-4]\d: "):
        mirror(broker_process, target, "damaged")
    originals = records_of_mended(broker_process, "damaged")
    copied = [row["value"] for row in records_of(target, "damaged", 0)]
    assert copied == originals[: len(copied)]
    mirror(broker_process, target, "damaged")
    assert [row["value"] for row in records_of(target, "damaged", 0)] == originals


def records_of_mended(broker: BrokerProcess, topic: str) -> list[bytes]:
    """Return the records' values after the damage was undone."""
    flip(segment_of(broker, topic))
    return [row["value"] for row in records_of(broker, topic, 0)]


def test_segments_with_garbage_are_not_archived(tmp_path: Path) -> None:
    with running_broker(tmp_path / "source", *OVERRIDES) as broker:
        make_topic(broker.bootstrap, "framed", segment_bytes="2000")
        fill(broker, "framed")
    _, second, *_ = sorted((broker.directory / "logs" / "framed-0").glob("*.log"))
    whole = second.read_bytes()
    second.write_bytes(whole[:900] + bytes(300) + whole[1200:])
    with pytest.raises(DamagedLogError, match=r"^framed-0 "):
        backfill(broker, "framed", tmp_path / "lake")
    assert Manifest(tmp_path / "lake").batches == []
    second.write_bytes(whole)
    assert backfill(broker, "framed", tmp_path / "lake") == [("framed", 0, 0, RECORDS, RECORDS, 0)]


def test_a_torn_tail_ends_a_backfill(tmp_path: Path) -> None:
    with running_broker(tmp_path / "source", *OVERRIDES) as broker:
        make_topic(broker.bootstrap, "torn")
        fill(broker, "torn")
        broker.kill()
    path = segment_of(broker, "torn")
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    ((_, _, _, until, rows, _),) = backfill(broker, "torn", tmp_path / "lake")
    assert 150 < until == rows < RECORDS
    path.write_bytes(whole)
    assert backfill(broker, "torn", tmp_path / "lake") == [("torn", 0, until, RECORDS, RECORDS - until, 0)]
    assert [row["offset"] for row in rows_of(tmp_path / "lake")] == list(range(RECORDS))


@pytest.mark.parametrize("damage", ["in the rows", "in the footer", "gone"])
def test_a_damaged_archive_is_not_replayed(broker_process: BrokerProcess, tmp_path: Path, damage: str) -> None:
    topic = f"spoilt-{damage.replace(' ', '-')}"
    make_topic(broker_process.bootstrap, topic)
    fill(broker_process, topic)
    archive(broker_process, topic, tmp_path, "--max-bytes", "2000")
    path = Path(str(Manifest(tmp_path).files()[-1]))
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        at = 40 if damage == "in the rows" else len(whole) - 20
        path.write_bytes(whole[:at] + b"\xff" * 12 + whole[at + 12 :])
    with pytest.raises(PipelineError, match=rf"{topic}(-0 offset \d+)?: .*{path.name}"):
        replay(broker_process, tmp_path)
    path.write_bytes(whole)
    replay(broker_process, tmp_path)
    values = [[row["value"] for row in records_of(broker_process, name, 0)] for name in (topic, f"again-{topic}")]
    assert values[0] == values[1]


# --- offsets that are not there, or mean something else ---


def test_records_deleted_before_they_were_mirrored_are_data_loss(
    broker_process: BrokerProcess, target: BrokerProcess
) -> None:
    make_topic(broker_process.bootstrap, "late-mirror")
    fill(broker_process, "late-mirror", 20)
    mirror(broker_process, target, "late-mirror")
    fill(broker_process, "late-mirror", 20)
    delete_records(broker_process.bootstrap, "late-mirror", 0, 30)
    with pytest.raises(DataLossError, match="late-mirror-0: offset 20 is missing, the log has 30 up to 40"):
        mirror(broker_process, target, "late-mirror")
    assert len(records_of(target, "late-mirror", 0)) == 20
    ((*_, _, records, _, _),) = mirror(broker_process, target, "late-mirror", "--no-fail-on-data-loss")
    assert records == 10
    assert len(records_of(target, "late-mirror", 0)) == 30


def test_records_deleted_before_they_were_backfilled_are_data_loss(tmp_path: Path) -> None:
    with running_broker(tmp_path / "source", *OVERRIDES) as broker:
        make_topic(broker.bootstrap, "late")
        fill(broker, "late", 20)
        backfill(broker, "late", tmp_path / "lake")
        fill(broker, "late", 20)
        delete_records(broker.bootstrap, "late", 0, 30)
    with pytest.raises(DataLossError, match="late-0: offset 20 is missing, the log has 30 up to 40"):
        backfill(broker, "late", tmp_path / "lake")
    backfill(broker, "late", tmp_path / "lake", "--no-fail-on-data-loss")
    assert [row["offset"] for row in rows_of(tmp_path / "lake")] == [*range(20), *range(30, 40)]


def test_a_recreated_topic_is_not_backfilled(broker_process: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker_process.bootstrap, "refilled")
    fill(broker_process, "refilled", 5)
    backfill(broker_process, "refilled", tmp_path)
    delete_topic(broker_process.bootstrap, "refilled")
    make_topic(broker_process.bootstrap, "refilled")
    fill(broker_process, "refilled", 10)
    with pytest.raises(ManifestError, match=r"topic refilled has id .* it was made again"):
        backfill(broker_process, "refilled", tmp_path)
    assert len(rows_of(tmp_path)) == 5


def test_a_topic_recreated_while_it_is_archived_adds_no_batch(
    broker_process: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(broker_process.bootstrap, "swapped")
    fill(broker_process, "swapped", 20)

    def swap_and_run(session: Any, work: Any, do: Any, progress: Any) -> list[Any]:
        delete_topic(broker_process.bootstrap, "swapped")
        make_topic(broker_process.bootstrap, "swapped")
        fill(broker_process, "swapped", 30)
        return run_tasks_once(session, work, do, progress)

    with monkeypatch.context() as patch:
        patch.setattr(writing, "run_tasks", swap_and_run)
        with pytest.raises(PipelineError, match="topic swapped was deleted and recreated while it was read"):
            archive(broker_process, "swapped", tmp_path)
    assert Manifest(tmp_path).batches == []
    assert archive(broker_process, "swapped", tmp_path) == [("swapped", 0, 0, 30, 30, 0)]
    assert len(rows_of(tmp_path)) == 30


def test_a_deleted_target_topic_is_filled_again_from_the_start(
    broker_process: BrokerProcess, target: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process.bootstrap, "emptied")
    fill(broker_process, "emptied", 20)
    archive(broker_process, "emptied", tmp_path)
    copies: dict[str, Callable[[], list[Any]]] = {
        "again-emptied": lambda: replay(target, tmp_path),
        "emptied": lambda: mirror(broker_process, target, "emptied"),
    }
    for topic, copy in copies.items():
        copy()
        delete_topic(target.bootstrap, topic)
        copy()
        assert len(records_of(target, topic, 0)) == 20


# --- brokers that are away ---


@pytest.mark.usefixtures("_impatient")
def test_an_unreachable_broker_is_an_error_that_names_its_address(
    broker_process: BrokerProcess, target: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process.bootstrap, "unheard")
    fill(broker_process, "unheard", 5)
    archive(broker_process, "unheard", tmp_path / "lake")
    away = "127.0.0.1:1"
    commands = {
        "archive": ["--bootstrap-server", away, "--archive", str(tmp_path / "other")],
        "replay": ["--bootstrap-server", away, "--archive", str(tmp_path / "lake")],
        "mirror": ["--from", away, "--to", target.bootstrap, "--topics", "unheard"],
    }
    for job, command in commands.items():
        with pytest.raises(PipelineError, match=away):
            run_job(job, *command)
    assert Manifest(tmp_path / "other").batches == []


@pytest.mark.usefixtures("_impatient")
def test_an_archive_job_continues_after_its_broker_was_killed_and_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_broker(tmp_path / "source", *OVERRIDES) as broker:
        make_topic(broker.bootstrap, "leaving")
        fill(broker, "leaving")
        count = Manifest.count

        def kill_after_some(manifest: Manifest, *given: Any) -> None:
            count(manifest, *given)
            if manifest.next_number == 2:
                broker.kill()

        with monkeypatch.context() as patch:
            patch.setattr(Manifest, "count", kill_after_some)
            with pytest.raises(PipelineError, match=r"leaving-0 offset \d+: |ListOffsets at 127"):
                archive(broker, "leaving", tmp_path / "lake", "--max-bytes", "1500")
        reached = Manifest(tmp_path / "lake").positions()["leaving", 0]
        assert len(rows_of(tmp_path / "lake")) == reached < RECORDS
        broker.start_again()
        archive(broker, "leaving", tmp_path / "lake")
        assert [row["offset"] for row in rows_of(tmp_path / "lake")] == list(range(RECORDS))


@pytest.mark.usefixtures("_impatient")
def test_connections_lost_during_fetch_and_metadata_requests_are_retried(
    broker_process: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(broker_process.bootstrap, "asked")
    fill(broker_process, "asked")
    receive = Wire.receive
    troubles = [FetchResponse, MetadataResponse]

    def break_off(wire: Wire, answer: Any) -> Any:
        if troubles and answer is troubles[0]:
            troubles.pop(0)
            wire.close()
        return receive(wire, answer)

    fetch = fetching.FetchOptions(WireSettings.from_options({"kafka.bootstrap.servers": broker_process.bootstrap}))
    wanted = fetching.FetchRange("asked", 0, 0, RECORDS)
    monkeypatch.setattr(Wire, "receive", break_off)
    assert [piece.next_offset for piece in fetching.fetch_pieces(wanted, fetch)][-1] == RECORDS
    assert not troubles


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("job", ["mirror", "replay"])
def test_mirror_and_replay_continue_after_the_target_was_killed_and_restarted(
    broker_process: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    topic = f"homeless-{job}"
    make_topic(broker_process.bootstrap, topic)
    fill(broker_process, topic)
    archive(broker_process, topic, tmp_path / "lake")
    monkeypatch.setattr("gregor.pipeline.archive.replaying.TRANSACTION_ROWS", 20)
    with running_broker(tmp_path / "target", *OVERRIDES) as other:
        copies: dict[str, Callable[[], list[Any]]] = {
            "mirror": lambda: mirror(broker_process, other, topic),
            "replay": lambda: replay(other, tmp_path / "lake"),
        }
        append = exact_copy.ExactCopy.append
        appended: list[bool] = []

        async def kill_after_some(*given: Any) -> list[int]:
            if len(appended) == 3:
                other.kill()
            appended.append(True)
            return await append(*given)

        with monkeypatch.context() as patch:
            patch.setattr(exact_copy.ExactCopy, "append", kill_after_some)
            with pytest.raises(PipelineError, match=rf"{topic}-0 at offset [1-9]\d+ of the source: "):
                copies[job]()
        other.start_again()
        copies[job]()
        name = topic if job == "mirror" else f"again-{topic}"
        originals = [row["value"] for row in records_of(broker_process, topic, 0)]
        assert [row["value"] for row in records_of(other, name, 0)] == originals
        assert end_offsets(other, name)[0] > RECORDS
