"""Archives in HDFS itself: what a store promises, a topic there and back, and writers that die."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("hdfs_native", reason="HDFS needs gregor-broker[hdfs]: `make pipeline` installs it")

from gregor.pipeline.archive import writing
from gregor.pipeline.archive.manifest import Manifest, ManifestError
from gregor.pipeline.archive.row_table import ParquetFiles
from gregor.pipeline.archive.store_lease import StoreLease
from gregor.pipeline.filesystems.files import create_json, files_below, move, open_output, write_json
from gregor.pipeline.filesystems.locations import location
from gregor.pipeline.filesystems.remote_path import RemotePath
from gregor.pipeline.jobs import audit as audit_job
from gregor.pipeline.jobs import replay as replay_job
from tests.broker_process import BrokerProcess
from tests.pipeline.archive_rows import arguments, make_topic, produce, rows_of
from tests.pipeline.hdfs_cluster import hdfs_cluster
from tests.pipeline.job_desk import run_job, run_tasks_once

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide a cluster of HDFS."""
    with hdfs_cluster(tmp_path_factory.mktemp("hdfs")) as found:
        yield found


def remote(text: str) -> RemotePath:
    found = location(text)
    assert isinstance(found, RemotePath)
    return found


def test_files_in_hdfs_can_be_created_once_replaced_moved_and_locked_by_a_lease(uri: str) -> None:
    root = remote(f"{uri}/promises")
    entry = root / "manifest" / "1.json"
    create_json(entry, {"a": 1})
    create_json(entry, {"a": 1})
    with pytest.raises(FileExistsError):
        create_json(entry, {"a": 2})
    write_json(entry, {"a": 3})
    assert '"a": 3' in entry.read_text()
    for _ in range(2):
        move(entry, root / "data=1" / "a b.json")
    assert list(files_below(root)) == [root / "data=1" / "a b.json"]
    with pytest.raises(FileNotFoundError):
        move(entry, root / "nowhere.json")
    output = open_output(root / "large")
    output.write(b"0123456789" * (1 << 20))
    assert not (root / "large").exists()
    output.close()
    reader = (root / "large").open_input()
    reader.seek(-3, 2)
    assert reader.read() == b"789"
    with StoreLease(root, print) as lease:
        with pytest.raises(ManifestError, match="is held by process"), StoreLease(root, print):
            pass
        lease.confirm()


@pytest.mark.parametrize("step", ["stage", "publish", "count"])
def test_an_archive_in_hdfs_is_complete_after_crashes_of_its_writers(
    uri: str, broker_process: BrokerProcess, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    for module in (writing, audit_job, replay_job):
        monkeypatch.setattr(module, "run_tasks", run_tasks_once)
    topic = f"hdfs-{step}"
    make_topic(broker_process, topic)
    produce(broker_process, topic, [b"v%d" % number for number in range(60)], batch_size=200)
    root = remote(f"{uri}/{topic}")
    command = arguments(broker_process, topic, root, "--max-bytes", "1500")
    owner = ParquetFiles if step == "publish" else Manifest
    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, lambda *given: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run_job("archive", *command)
    run_job("archive", *command)
    assert [(row["partition"], row["offset"]) for row in rows_of(root)] == [(p, o) for p in (0, 1) for o in range(30)]
    assert list(files_below(root / "data")) == sorted(Manifest(root).files())
    audit, _ = run_job("audit", "--archive", str(root), "--against-bootstrap-server", broker_process.bootstrap)
    assert {row[-1] for row in audit.rows if row[0] == topic} == {"the same"}
