"""Stores of Azure (Azurite) and Google, found by Spark's settings alone: what the stores promise, and an archive."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("obstore", reason="stores need gregor-broker[azure,gcs]: `make pipeline` installs it")
pytest.importorskip("moto", reason="the server of the tests needs gregor-broker[spark-test]")

from gregor.pipeline.archive import writing
from gregor.pipeline.filesystems.files import create_json, files_below, move, open_output, write_json
from gregor.pipeline.filesystems.locations import location
from gregor.pipeline.filesystems.remote_path import RemotePath
from gregor.pipeline.hadoop_configuration import use_settings
from gregor.pipeline.jobs import audit as audit_job
from gregor.pipeline.jobs import replay as replay_job
from tests.broker_process import BrokerProcess
from tests.pipeline.archive_rows import arguments, make_topic, produce
from tests.pipeline.azure_server import ACCOUNT, KEY, azure_server
from tests.pipeline.google_server import google_server
from tests.pipeline.job_desk import run_job, run_tasks_once


class Place(NamedTuple):
    """A bucket or container, and the settings of Spark that lead there."""

    uri: str
    settings: dict[str, str]


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with azure_server(tmp_path_factory.mktemp("azurite")) as server, pytest.MonkeyPatch.context() as patch:
        # Hadoop has no setting for an address that is not the account's.
        patch.setenv("AZURE_STORAGE_ENDPOINT", server.endpoint)
        yield Place(server.uri, {f"spark.hadoop.fs.azure.account.key.{ACCOUNT}.dfs.core.windows.net": KEY})


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    path = tmp_path_factory.mktemp("account") / "key.json"
    with google_server() as server:
        server.write_key(path)
        settings = {"spark.hadoop.google.cloud.auth.service.account.json.keyfile": str(path)}
        yield Place(f"gs://{server.bucket}", settings)


@pytest.fixture(params=["azure", "google"])
def root(request: pytest.FixtureRequest) -> Iterator[RemotePath]:
    place: Place = request.getfixturevalue(request.param)
    use_settings(place.settings)
    found = location(f"{place.uri}/{request.node.name}")
    assert isinstance(found, RemotePath)
    yield found
    use_settings({})


def test_a_file_is_created_once_and_replaced(root: RemotePath) -> None:
    create_json(root / "a.json", {"number": 1})
    create_json(root / "a.json", {"number": 1})
    with pytest.raises(FileExistsError):
        create_json(root / "a.json", {"number": 2})
    write_json(root / "a.json", {"number": 3}, indent=None)
    assert (root / "a.json").read_text() == '{"number": 3}'


def test_one_of_many_creators_of_a_file_wins(root: RemotePath) -> None:
    won: list[int] = []

    def attempt(number: int) -> None:
        try:
            create_json(root / "race.json", {"number": number})
        except FileExistsError:
            return
        won.append(number)

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


@pytest.mark.parametrize("size", [0, 1, 17 << 20])
def test_a_file_appears_when_it_is_complete_and_can_be_moved(root: RemotePath, size: int) -> None:
    source, target = root / "topic=a b%" / "é.parquet", root / "data" / "topic=a b%" / "é.parquet"
    output = open_output(source)
    output.write(b"x" * size)
    assert not source.exists()
    output.close()
    assert files_below(root) == {source: size}
    move(source, target)
    move(source, target)
    assert files_below(root) == {target: size}
    with target.open_input() as file:
        file.seek(size // 2)
        assert file.read(10) == b"x" * min(10, size - size // 2)
    target.unlink()
    target.unlink()
    with pytest.raises(FileNotFoundError):
        target.read_bytes()


def test_executors_get_the_settings_of_the_driver(root: RemotePath) -> None:
    create_json(root / "a.json", {})
    sent = pickle.dumps(root / "a.json")
    use_settings({})
    assert pickle.loads(sent).read_text() == "{}"


def test_a_topic_is_archived_compacted_audited_and_replayed(
    root: RemotePath, broker_process: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (writing, audit_job, replay_job):
        monkeypatch.setattr(module, "run_tasks", run_tasks_once)
    topic = f"in-{root.store.uri[:2]}"
    make_topic(broker_process, topic)
    produce(broker_process, topic, [b"v%d" % number for number in range(60)], batch_size=200)
    run_job("archive", *arguments(broker_process, topic, root, "--max-bytes", "1500"))
    run_job("archive", *arguments(broker_process, topic, root))
    broker = ["--bootstrap-server", broker_process.bootstrap]
    audit, _ = run_job("audit", "--archive", str(root), "--against-bootstrap-server", broker_process.bootstrap)
    assert audit.is_clean
    assert [row[-1] for row in audit.rows if row[0] == topic] == ["the same", "the same"]
    replayed, _ = run_job("replay", "--archive", str(root), *broker, "--prefix", "again-")
    assert [row[-1] for row in replayed.rows] == [30, 30]
    assert Path("archive.lock") not in files_below(root)
