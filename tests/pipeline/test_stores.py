"""What a store promises the archive, with answers that fail or get lost; S3 by a server in this process."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("obstore", reason="stores need gregor-broker[s3]: `make pipeline` installs it")
pytest.importorskip("moto", reason="the S3 server of the tests needs gregor-broker[spark-test]")

import pyarrow as pa
from pyarrow import parquet

from gregor.pipeline.archive import store_lease
from gregor.pipeline.archive.manifest import ManifestError
from gregor.pipeline.archive.store_lease import StoreLease
from gregor.pipeline.errors import OptionError
from gregor.pipeline.filesystems import object_store, retries
from gregor.pipeline.filesystems.files import files_below, move, open_output, parquet_source
from gregor.pipeline.filesystems.locations import location
from gregor.pipeline.filesystems.remote_path import RemotePath
from gregor.pipeline.filesystems.stores import StoreError
from gregor.pipeline.hadoop_configuration import use_settings
from tests.interruptible import raised_interrupts
from tests.pipeline.s3_server import S3Server, s3_server


@pytest.fixture(scope="module")
def running_server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def server(running_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """Provide a server without faults, and attempts without pauses."""
    monkeypatch.setattr(retries, "PAUSES_S", (0.0, 0.0, 0.0))
    # The client's own repetitions would hide what happens after them.
    use_settings({"spark.hadoop.fs.s3a.attempts.maximum": "0", "spark.hadoop.fs.s3a.connection.request.timeout": "1s"})
    running_server.faults = 0
    yield running_server
    running_server.fault = lambda request: None
    running_server.released.set()
    running_server.released = threading.Event()
    use_settings({})


def failing(server: S3Server, method: str, fault: str, times: int) -> None:
    """Let the next requests of a method fail."""
    left = [times]

    def choose(request: dict[str, Any]) -> str | None:
        if request["REQUEST_METHOD"] != method or not left[0]:
            return None
        left[0] -= 1
        return fault

    server.faults = 0
    server.fault = choose


def put(path: RemotePath, contents: bytes) -> None:
    path.store.create(str(path.key), contents)


@pytest.mark.parametrize("fault", ["refuse", "lose", "slow down", "hang", "cut"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_file_is_created_once_whatever_happens_to_the_answers(server: S3Server, fault: str, times: int) -> None:
    path = server.root(f"once-{fault}-{times}") / "entry.json"
    failing(server, "PUT", fault, times)
    put(path, b"ours")
    assert server.faults == (1 if fault in ("lose", "cut") else times)
    assert path.read_bytes() == b"ours"
    with pytest.raises(FileExistsError):
        put(path, b"theirs")
    put(path, b"ours")
    assert path.read_bytes() == b"ours"


def test_a_store_that_keeps_failing_is_named(server: S3Server) -> None:
    path = server.root("down") / "entry.json"
    failing(server, "PUT", "refuse", 1000)
    with pytest.raises(StoreError, match=f"^s3a://{server.bucket}/down/entry.json: .*500 Internal Server Error"):
        put(path, b"ours")
    assert not path.exists()


def test_only_one_of_many_concurrent_creators_of_a_file_succeeds(server: S3Server) -> None:
    path = server.root("race") / "entry.json"
    won: list[int] = []

    def attempt(number: int) -> None:
        try:
            put(path, b"%d" % number)
        except FileExistsError:
            return
        won.append(number)

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [b"%d" % number for number in won] == [path.read_bytes()]


@pytest.mark.parametrize(("method", "fault"), [("PUT", "refuse"), ("PUT", "lose"), ("POST", "lose")])
def test_a_move_is_completed_by_its_repetition(server: S3Server, method: str, fault: str) -> None:
    root = server.root(f"move-{method}-{fault}")
    put(root / "staged" / "a", b"rows")
    failing(server, method, fault, 1)
    move(root / "staged" / "a", root / "data" / "a")
    assert server.faults == 1
    move(root / "staged" / "a", root / "data" / "a")
    assert list(files_below(root)) == [root / "data" / "a"]
    assert (root / "data" / "a").read_bytes() == b"rows"
    with pytest.raises(FileNotFoundError):
        move(root / "staged" / "b", root / "data" / "b")


@pytest.mark.parametrize("rows", [0, 10, 2_000_000])
def test_a_file_appears_when_it_is_complete(server: S3Server, rows: int) -> None:
    path = server.root("large") / f"{rows}.parquet"
    table = pa.table({"number": pa.array(range(rows), pa.int64())})
    output = open_output(path)
    writer = parquet.ParquetWriter(output, table.schema, compression="none", use_dictionary=False)
    writer.write_table(table)
    assert not path.exists()
    writer.close()
    assert not path.exists()
    output.close()
    assert parquet.read_table(parquet_source(path)).equals(table)
    assert path.stat().st_size == files_below(path.parent)[path]


@pytest.mark.parametrize("size", [0, 9 << 20])
@pytest.mark.parametrize("fails", [True, False])
def test_a_writer_that_fails_or_is_dropped_leaves_no_file(server: S3Server, size: int, fails: bool) -> None:
    path = server.root("broken") / f"{size}-{fails}.parquet"
    output = open_output(path)
    output.write(b"x" * size)
    failing(server, "PUT", "refuse", 1000)
    if fails:
        with pytest.raises(StoreError, match="500 Internal Server Error"):
            output.close()
    server.fault = lambda request: None
    del output
    assert not path.exists()


@pytest.mark.parametrize("fault", ["refuse", "lose", "slow down", "hang", "cut"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_large_upload_is_repeated_whichever_request_fails(server: S3Server, fault: str, method: str) -> None:
    path = server.root("repeated") / f"{method}-{fault}"
    output = open_output(path)
    for number in range(17):
        output.write(b"%d" % (number % 10) * (1 << 20))
    failing(server, method, fault, 2)
    output.close()
    assert server.faults
    assert path.read_bytes() == b"".join(b"%d" % (number % 10) * (1 << 20) for number in range(17))


def test_a_listing_whose_page_is_cut_begins_again(server: S3Server) -> None:
    root = server.root("listed")
    for number in range(3):
        put(root / f"{number}", b"1")
    failing(server, "GET", "cut", 1)
    assert [path.name for path in files_below(root)] == ["0", "1", "2"]


@pytest.mark.parametrize("fault", ["hang", "cut", "slow down"])
def test_a_store_that_stays_slow_or_cut_off_is_named_in_one_line(server: S3Server, fault: str) -> None:
    path = server.root("slow") / "entry.json"
    put(path, b"contents")
    failing(server, "GET", fault, 1000)
    with pytest.raises(StoreError) as failure:
        path.read_bytes()
    told = str(failure.value)
    assert told.startswith(f"{path}: ")
    assert "\n" not in told
    assert {"hang": "no answer within 1 s", "cut": "body error", "slow down": "503 Service Unavailable"}[fault] in told


def test_nothing_is_tried_again_after_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PAUSES_S", (0.0,) * 100)
    attempts: list[int] = []

    def attempt() -> None:
        attempts.append(1)
        raise StoreError("no")

    for limit_s, most in ((-1.0, 1), (1000.0, 101)):
        attempts.clear()
        with pytest.raises(StoreError):
            retries.try_again(attempt, limit_s)
        assert len(attempts) == most


def test_an_interruption_does_not_wait_for_a_request_that_hangs(server: S3Server) -> None:
    path = server.root("interrupted") / "a"
    use_settings({"spark.hadoop.fs.s3a.connection.request.timeout": "1h"})

    def interrupt(request: dict[str, Any]) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return "hang"

    server.fault = interrupt
    with raised_interrupts(), pytest.raises(KeyboardInterrupt):
        path.read_bytes()
    server.released.set()


def test_executors_get_the_settings_of_the_driver(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    path = server.root("pickled") / "a"
    put(path, b"1")
    sent = pickle.dumps(path)
    for name in server.environment:
        monkeypatch.delenv(name)
    assert pickle.loads(sent).read_bytes() == b"1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ftp://host/lake", "ftp is not supported: a path of this machine, or one of file://, s3://"),
        ("s3a:/lake", "has no host: write s3a://BUCKET/path"),
        ("hdfs:///lake", "has no host: write hdfs://HOST:PORT/path"),
        ("gs://bucket/a?b", "has no query"),
        ("file://lake/x", "is on the host lake: write file:///path"),
    ],
)
def test_invalid_uris_are_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        location(text)


@pytest.mark.parametrize(
    "text", ["s3://b/lake", "s3a://b/a=1/x%20y", "gs://b", "abfss://c@account.dfs.core.windows.net/a"]
)
def test_a_location_is_printed_as_the_user_wrote_it(text: str) -> None:
    assert str(location(text)).replace(" ", "%20") == text


# --- leases ---


def lease(server: S3Server, name: str, said: list[str] | None = None) -> StoreLease:
    return StoreLease(server.root(name), ([] if said is None else said).append)


def elsewhere(held: StoreLease, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let later holders be on another machine than this one."""
    monkeypatch.setattr(store_lease, "_machine", lambda: "another")
    monkeypatch.setattr(store_lease, "LEASE_S", 0.2)
    monkeypatch.setattr(store_lease, "LOOK_EVERY_S", 0.05)


def test_a_lease_has_one_holder_at_a_time(server: S3Server) -> None:
    with lease(server, "held") as first:
        assert not first.follows_a_crash
        first.confirm()
        with pytest.raises(ManifestError, match="is held by process"), lease(server, "held"):
            pass
    with lease(server, "held") as second:
        assert (second.epoch, second.follows_a_crash) == (2, False)


def test_a_lease_after_a_failed_holder_follows_a_crash(server: S3Server) -> None:
    with pytest.raises(KeyboardInterrupt), lease(server, "failed"):
        raise KeyboardInterrupt
    with lease(server, "failed") as second:
        assert second.follows_a_crash


def test_a_lease_that_is_not_renewed_is_taken_by_another_machine(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    first = lease(server, "silent")
    with first:
        elsewhere(first, monkeypatch)
        with lease(server, "silent", said) as second:
            assert second.follows_a_crash
            assert "waiting up to" in said[0]
            second.confirm()
            with pytest.raises(ManifestError, match="was taken by process"):
                first.confirm()
    # The first holder's release is not that of the second one.
    with lease(server, "silent") as third:
        assert not third.follows_a_crash
        assert third.epoch == 3


def test_a_lease_that_is_renewed_is_not_taken_by_another_machine(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_lease, "RENEWAL_S", 0.05)
    first = lease(server, "renewing")
    with first:
        elsewhere(first, monkeypatch)
        monkeypatch.setattr(store_lease, "LEASE_S", 30.0)
        with pytest.raises(ManifestError, match="is held by process"), lease(server, "renewing"):
            pass
        first.confirm()


def test_a_store_that_replaces_what_it_should_create_is_refused(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = object_store.ObjectStore
    monkeypatch.setattr(store, "create", store.replace)
    with pytest.raises(ManifestError, match="replaces files that it was asked to create"), lease(server, "lax"):
        pass
