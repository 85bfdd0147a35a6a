"""Options for programs that start a broker for tests: ephemeral data, a free port, saved states."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import trio

from gregor.client.admin import Admin, NewTopic, ResourceType
from gregor.client.consumer.consumer import Consumer
from gregor.command_line.asking import UsageError
from gregor.command_line.ephemeral import PREFIX, ephemeral_directory, remove_abandoned
from gregor.command_line.reset import reset
from gregor.command_line.snapshots import SnapshotError, load_snapshot, save_snapshot
from gregor.storage.disk.log_directory import StorageUnavailableError
from tests.broker_process import BrokerProcess
from tests.command_line.test_client_tools import run
from tests.waiting import PATIENCE_S


@contextlib.contextmanager
def served(
    directory: Path, *words: str, port: tuple[str, ...] = ("--port", "0")
) -> Iterator[tuple[dict[str, Any], subprocess.Popen[bytes]]]:
    """Run `gregor serve --ready-json` for the length of a block; yield its ready line and its process."""
    command = [sys.executable, "-m", "gregor.command_line", "serve", *port, "--ready-json", *words]
    environment = {**os.environ, "TMPDIR": str(directory)}
    with (
        (directory / "log").open("ab") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=environment) as one,
    ):
        try:
            assert one.stdout is not None
            line = one.stdout.readline()
            assert line, (directory / "log").read_text()
            yield json.loads(line), one
        finally:
            one.send_signal(signal.SIGTERM)
            assert one.stdout is not None
            rest = one.stdout.read()
            assert (one.wait(PATIENCE_S) in (0, -signal.SIGKILL), rest) == (True, b"")


def stored(facts: dict[str, Any], topic: str) -> bytes:
    """Return the bytes in the log of partition 0 of a topic, where uncompressed values are found as they are."""
    (segment,) = Path(facts["log_dirs"][0], f"{topic}-0").glob("*.log")
    return segment.read_bytes()


def test_an_ephemeral_broker_leaves_nothing_behind(tmp_path: Path) -> None:
    seed = tmp_path / "orders.jsonl"
    seed.write_text('{"value": "first"}\n')
    port_file = tmp_path / "port"
    words = ("--ephemeral", "--topic", "users:2", "--load", str(seed), "--port-file", str(port_file))
    with served(tmp_path, *words) as (facts, process):
        assert facts["ready"] is True
        assert facts["pid"] == process.pid
        assert facts["bootstrap_servers"] == f"localhost:{facts['port']}"
        assert int(port_file.read_text()) == facts["port"]
        (data,) = map(Path, facts["log_dirs"])
        assert data.parent == tmp_path
        assert {path.name for path in data.glob("users-*")} == {"users-0", "users-1"}
        assert b"first" in stored(facts, "orders")
    assert (data.exists(), port_file.exists()) == (False, False)


def test_directories_of_killed_ephemeral_brokers_are_removed_by_the_next(tmp_path: Path) -> None:
    with served(tmp_path, "--ephemeral") as (facts, process):
        process.kill()
        process.wait()
    (left,) = map(Path, facts["log_dirs"])
    assert left.exists()
    (tmp_path / f"{PREFIX}file").touch()
    with ephemeral_directory() as other:
        remove_abandoned(other.parent)
        assert other.exists(), "a directory in use is not abandoned"
    remove_abandoned(tmp_path)
    assert not left.exists()


def test_each_broker_begins_with_the_saved_state(tmp_path: Path) -> None:
    data, snapshot = tmp_path / "data", tmp_path / "seed.tar"
    seed = tmp_path / "orders.jsonl"
    seed.write_text('{"value": "saved"}\n')
    with served(tmp_path, "--dir", str(data), "--load", str(seed)) as (facts, _):
        refused = run(None, "state", "save", str(snapshot), "--dir", str(data))
        assert (refused.code, "in use by another broker" in refused.err, snapshot.exists()) == (1, True, False)
        snapshot.touch()
        with pytest.raises(StorageUnavailableError, match="in use by another broker"):
            load_snapshot(snapshot, data)
        cluster_id = facts["cluster_id"]
    assert run(None, "state", "save", str(snapshot), "--dir", str(data)).code == 0
    for _ in range(2):
        with served(tmp_path, "--ephemeral", "--state", str(snapshot)) as (facts, _):
            assert facts["cluster_id"] == cluster_id
            assert [value in stored(facts, "orders") for value in (b"saved", b"another")] == [True, False]
            server = ("--bootstrap-server", facts["bootstrap_servers"])
            assert run(None, "produce", "--topic", "orders", *server, text="another\n").code == 0
            assert b"another" in stored(facts, "orders")


def test_a_snapshot_replaces_all_that_is_there(tmp_path: Path) -> None:
    data, snapshot = tmp_path / "data", tmp_path / "seed.tar"
    (data / "t-0").mkdir(parents=True)
    (data / "meta.properties").write_text("saved")
    assert save_snapshot(data, snapshot) == snapshot.stat().st_size
    (data / "later-0").mkdir()
    (data / "meta.properties").write_text("later")
    load_snapshot(snapshot, data)
    assert sorted(path.name for path in data.iterdir()) == [".lock", "meta.properties", "t-0"]
    assert (data / "meta.properties").read_text() == "saved"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "seed.tar"]


def test_invalid_snapshots_change_nothing(tmp_path: Path) -> None:
    data, snapshot = tmp_path / "data", tmp_path / "seed.tar"
    data.mkdir()
    with pytest.raises(SnapshotError, match=r"is not a log directory: it has no meta\.properties"):
        save_snapshot(data, snapshot)
    (data / "meta.properties").write_text("kept")
    snapshot.write_text("no tar file")
    with pytest.raises(SnapshotError, match="is not a snapshot"):
        load_snapshot(snapshot, data)
    assert (data / "meta.properties").read_text() == "kept"
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis").touch()
    with pytest.raises(SnapshotError, match="neither empty nor a log directory"):
        load_snapshot(snapshot, tmp_path / "home")


def test_a_port_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    place = tmp_path / "missing" / "port"
    refused = run(None, "serve", "--dir", str(tmp_path / "data"), "--port", "0", "--port-file", str(place))
    assert (refused.code, refused.err) == (1, f"gregor: port file {place}: No such file or directory\n")


def test_the_option_state_needs_ephemeral(tmp_path: Path) -> None:
    refused = run(None, "serve", "--dir", str(tmp_path / "data"), "--state", str(tmp_path / "seed.tar"))
    assert (refused.code, refused.err.startswith("gregor: --state needs --ephemeral")) == (1, True)


async def test_reset_deletes_topics_and_groups(broker_process: BrokerProcess) -> None:
    name, group = f"t-{uuid4().hex}", f"g-{uuid4().hex}"
    async with Admin(broker_process.bootstrap) as admin:
        await admin.create_topics([NewTopic(name, 3, configs={"retention.ms": "9000000"})])
        await admin.alter_group_offsets(group, {(name, 0): 0})
        (before,) = await admin.describe_topics([name])
        assert await reset(admin, recreates=True) == (1, 1)
        (after,) = await admin.describe_topics([name])
        assert (after.topic_id != before.topic_id, len(after.partitions)) == (True, 3)
        configs = {entry.name: entry.value for entry in await admin.describe_configs(ResourceType.TOPIC, name)}
        assert configs["retention.ms"] == "9000000"
        assert await admin.list_groups() == []
        done = await trio.to_thread.run_sync(run, broker_process, "reset")
        assert (done.code, done.out.startswith("Deleted 1 topics and 0 groups in ")) == (0, True), done.err
        assert await admin.list_topics() == []


async def test_reset_names_groups_that_are_in_use(broker_process: BrokerProcess) -> None:
    name, group = f"t-{uuid4().hex}", f"g-{uuid4().hex}"
    async with Admin(broker_process.bootstrap) as admin, Consumer(broker_process.bootstrap, group_id=group) as consumer:
        await admin.create_topics([NewTopic(name)])
        consumer.subscribe([name])
        while not consumer.assignment():
            await consumer.poll(timeout_ms=50)
        with pytest.raises(UsageError, match=f"groups with members stay: {group}"):
            await reset(admin, recreates=False)
        assert name not in await admin.list_topics()


def test_reset_of_a_remote_broker_must_be_confirmed() -> None:
    refused = run(None, "reset", "--bootstrap-server", "kafka.example:9092")
    assert refused.code == 1
    assert refused.err == "Error: this deletes everything at kafka.example:9092: add --yes\n"
