"""Archives in Apache Iceberg: each batch once, evolving schemas, folders by fields, compaction, tables in a catalog."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyiceberg", reason="archives in Iceberg need gregor-broker[iceberg]")

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.config import Config

from gregor.pipeline.archive import dead_letters, iceberg_compaction, iceberg_tables, writing
from gregor.pipeline.archive import manifest as manifests
from gregor.pipeline.archive.description import ArchiveDescription
from gregor.pipeline.archive.iceberg_tables import BATCH, RANGES, IcebergTables
from gregor.pipeline.archive.manifest import Manifest, ManifestError
from gregor.pipeline.errors import OptionError, PipelineError
from gregor.pipeline.jobs import audit, replay
from tests.broker_process import BrokerProcess
from tests.pipeline.archive_rows import arguments, make_topic, produce
from tests.pipeline.job_desk import run_job, run_tasks_once
from tests.pipeline.stored import contents, records_of

if TYPE_CHECKING:
    from pyiceberg.table import Table


@pytest.fixture(autouse=True)
def _tasks_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (writing, iceberg_compaction, replay, audit, dead_letters):
        monkeypatch.setattr(module, "run_tasks", run_tasks_once)


def table(root: Path, folder: str = "data") -> Table:
    """Return the table as other programs open it."""
    return SqlCatalog("archive", uri=f"sqlite:///{root / 'catalog.db'}").load_table(("archive", folder))


def rows(root: Path, folder: str = "data") -> list[dict[str, Any]]:
    """Return the rows of the table, in order, as Iceberg itself reads them."""
    found = table(root, folder).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def iceberg(broker: BrokerProcess, topic: str, root: Path, *more: str) -> list[str]:
    """Return arguments of the job `archive`."""
    return arguments(broker, topic, root, "--format", "iceberg", *more)


def test_rows_are_in_a_table_and_dead_letters_in_another(broker_process: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker_process, "2021")
    produce(broker_process, "2021", [b"v%d" % number for number in range(28)] + [b"\xff", b"v29"])
    command = iceberg(broker_process, "2021", tmp_path / "a lake", "--values", "string")
    assert run_job("archive", *command)[0].rows == [("2021", 0, 0, 15, 14, 1), ("2021", 1, 0, 15, 15, 0)]
    found = rows(tmp_path / "a lake")
    assert [row["value"] for row in found] == [f"v{n}" for p in (0, 1) for n in range(p, 30, 2) if n != 28]
    assert found[0]["headers"] == [{"key": "h", "value": b"1"}]
    (letter,) = rows(tmp_path / "a lake", "dead_letters")
    assert (letter["topic"], letter["partition"], letter["offset"], letter["value"]) == ("2021", 0, 14, b"\xff")
    partitions = table(tmp_path / "a lake").inspect.partitions()["partition"].to_pylist()
    assert sorted(each["date"] for each in partitions) == [date(1970, 1, day) for day in (2, 3, 4)]
    assert run_job("archive", *command)[0].notes == ["nothing new: everything is archived"]
    produce(broker_process, "2021", [b"more"])
    # The format is the archive's.
    run_job("archive", *arguments(broker_process, "2021", tmp_path / "a lake"))
    assert len(rows(tmp_path / "a lake")) == 30
    last = table(tmp_path / "a lake").current_snapshot()
    assert last
    assert (last.summary[BATCH], json.loads(last.summary[RANGES])) == ("1", [["2021", 0, 15, 16]])
    with pytest.raises(ManifestError, match="was made with format iceberg, not delta"):
        run_job("archive", *arguments(broker_process, "2021", tmp_path / "a lake", "--format", "delta"))


class CrashError(Exception):
    """An error at the point where the driver is killed."""


def crash(*_: object, **__: object) -> None:
    """Raise CrashError."""
    raise CrashError


def after(work: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does the work and then raises CrashError."""

    def both(*given: Any, **named: Any) -> None:
        work(*given, **named)
        raise CrashError

    return both


STEPS: tuple[tuple[object, str, Callable[..., Any]], ...] = (
    (writing, "run_tasks", after(run_tasks_once)),
    (manifests, "create_json", crash),
    (Manifest, "stage", after(Manifest.stage)),
    (IcebergTables, "_move", after(IcebergTables._move)),
    (iceberg_tables, "_commit", after(iceberg_tables._commit)),
    (IcebergTables, "publish", after(IcebergTables.publish)),
    (Manifest, "count", after(Manifest.count)),
)


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_crash_at_each_step_loses_and_doubles_no_records(
    broker_process: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_compacted: bool
) -> None:
    topic = f"torn-{is_compacted}"
    make_topic(broker_process, topic)
    command = iceberg(broker_process, topic, tmp_path, "--values", "string")
    for place, name, crashing in STEPS:
        produce(broker_process, topic, [b"good", b"\xff", b"good", b"good"])
        with monkeypatch.context() as patch:
            patch.setattr(place, name, crashing)
            with pytest.raises(CrashError):
                run_job("archive", *command)
        if is_compacted and list((tmp_path / "data").glob("metadata/snap-*")):
            # Another program forgets the snapshots whose summaries have the batches.
            known = table(tmp_path)
            known.maintenance.expire_snapshots().by_ids(
                [each.snapshot_id for each in known.snapshots() if each != known.current_snapshot()]
            ).commit()
    compacted = ["--compact", "--keep-versions", "0"] if is_compacted else []
    run_job("archive", *command, *compacted)
    rounds = len(STEPS)
    good = [(0, offset) for offset in range(2 * rounds)] + [(1, offset) for offset in range(1, 2 * rounds, 2)]
    assert [(row["partition"], row["offset"]) for row in rows(tmp_path)] == good
    letters = [(row["partition"], row["offset"]) for row in rows(tmp_path, "dead_letters")]
    assert letters == [(1, offset) for offset in range(0, 2 * rounds, 2)]
    if is_compacted:
        assert len(list((tmp_path / "data").rglob("*.parquet"))) == 1
        assert len(list((tmp_path / "data" / "metadata").glob("snap-*"))) == 1


def test_columns_are_added_widened_renamed_and_dropped(broker_process: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker_process, "evolving", 1)

    def archive(record: dict[str, Any], *fields: dict[str, Any], more: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        produce(broker_process, "evolving", [json.dumps(record).encode()], 1)
        optional = [{**field, "type": ["null", field["type"]], "default": None} for field in fields]
        path = tmp_path / "visit.avsc"
        path.write_text(json.dumps({"type": "record", "name": "Visit", "fields": optional}))
        root = tmp_path / "lake"
        run_job("archive", *iceberg(broker_process, "evolving", root, "--values", "json", "--schema", str(path), *more))
        return [
            {name: field for name, field in row["value"].items() if field is not None}
            for row in rows(tmp_path / "lake")
        ]

    count, name = {"name": "n", "type": "int"}, {"name": "name", "type": "string"}
    tags = {"name": "tags", "type": {"type": "array", "items": "int"}}
    home: dict[str, Any] = {"type": "record", "name": "Home", "fields": [{"name": "city", "type": "string"}]}
    at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
    first = {"n": 1, "name": "Ada", "tags": [1], "home": {"city": "Bern"}, "at": 0}
    (before,) = archive(first, count, name, tags, {"name": "home", "type": home}, at)
    assert (before["n"], before["home"], before["at"].timestamp()) == (1, {"city": "Bern"}, 0)

    wide: dict[str, Any] = {**home, "fields": [{"name": "town", "type": "string", "aliases": ["city"]}]}
    wide["fields"] += [{"name": "zip", "type": ["null", "long"], "default": None}]
    long, who = {**count, "type": "long"}, {"name": "who", "type": "string", "aliases": ["name"]}
    tags = {"name": "tags", "type": {"type": "array", "items": "long"}}
    second = {"n": 2**40, "who": "Ben", "tags": [2**41], "home": {"town": "Rome", "zip": 7}}
    old, new = archive(second, long, who, tags, {"name": "home", "type": wide})
    assert old == {"n": 1, "who": "Ada", "tags": [1], "home": {"town": "Bern", "zip": None}, "at": before["at"]}
    assert new == second

    page = {"name": "page", "type": "string"}
    third = {"n": 3, "page": "/"}
    assert archive(third, long, page, more=("--compact", "--keep-versions", "0")) == [old, new, third]
    (parquet,) = (tmp_path / "lake" / "data").rglob("*.parquet")
    assert parquet.name.startswith("3-")
    with pytest.raises(ManifestError, match=r"value\.n is int64 in the table, and the schema makes it int32"):
        archive(third, count)
    assert len(rows(tmp_path / "lake")) == 3


def test_an_iceberg_archive_can_be_replayed_and_audited_after_compaction(
    broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "played")
    make_topic(broker_process, "other", 1)
    produce(broker_process, "other", [b"1"], 1)
    produce(broker_process, "played", [None if n % 9 == 0 else b"v%d" % n for n in range(60)], batch_size=300)
    root, parquet = tmp_path / "iceberg", tmp_path / "parquet"
    run_job("archive", *iceberg(broker_process, "played,other", root, "--max-bytes", "3000"))
    run_job("archive", *arguments(broker_process, "played,other", parquet))
    command = ["--bootstrap-server", broker_process.bootstrap, "--archive", str(root), "--topics", "played"]
    run_job("replay", *command, "--prefix", "a-")
    before = rows(root)
    (note, _) = run_job("archive", *iceberg(broker_process, "played,other", root, "--compact"))[0].notes
    assert "files became" in note
    assert rows(root) == before
    run_job("replay", *command, "--prefix", "b-")
    for partition in (0, 1):
        originals = contents(records_of(broker_process, "played", partition))
        assert contents(records_of(broker_process, "a-played", partition)) == originals
        assert contents(records_of(broker_process, "b-played", partition)) == originals
    summary, _ = run_job("audit", "--archive", str(root), "--against-archive", str(parquet))
    assert [row[-1] for row in summary.rows] == ["the same"] * 3
    table(root).delete("offset = 3")
    assert not run_job("audit", "--archive", str(root))[0].is_clean


def test_a_table_of_an_iceberg_catalog_is_partitioned_by_fields_of_the_value(
    broker_process: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(broker_process, "sold", 1)
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{tmp_path / 'shop.db'}")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__WAREHOUSE", f"file://{tmp_path / 'warehouse'}")
    # PyIceberg reads its configuration when it is imported.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    address = {"type": "record", "name": "Address", "fields": [{"name": "country", "type": "string"}]}
    fields = [{"name": "n", "type": "int"}, {"name": "to", "type": ["null", address], "default": None}]
    path = tmp_path / "sold.avsc"
    path.write_text(json.dumps({"type": "record", "name": "Sold", "fields": fields}))
    command = iceberg(broker_process, "sold", tmp_path / "lake", "--values", "json", "--schema", str(path))
    command += ["--by-field", "to.country", "--by-field", "n", "--table", "shop.sales.sold", "--by", "hour"]
    countries = ["SE", "a/b=c é%", "x" * 60, "", "SE"]
    values = [
        {"n": n % 2, "to": {"country": country} if country is not None else None} for n, country in enumerate(countries)
    ]
    for _ in range(2):
        produce(broker_process, "sold", [*(json.dumps(value).encode() for value in values), None, b"?"], 1)
        run_job("archive", *command)
    found = SqlCatalog("shop", uri=f"sqlite:///{tmp_path / 'shop.db'}").load_table("sales.sold")
    seen = {
        (each["partition"]["to_country"], each["partition"]["n"], each["record_count"])
        for each in found.inspect.partitions().to_pylist()
    }
    assert seen == {("SE", 0, 4), ("a/b=c é%", 1, 2), ("x" * 60, 0, 2), (None, 1, 2), (None, None, 2)}
    assert found.scan(row_filter="to_country = 'SE'").to_arrow().num_rows == 4
    run_job("archive", *command, "--compact", "--keep-versions", "0")
    assert found.refresh().scan().to_arrow().num_rows == 12
    assert len(list(found.scan().plan_files())) == 5
    for wrong, reason in (("nocatalog.a.b", "catalog nocatalog"), ("shop.sold", "CATALOG.NAMESPACE.NAME")):
        with pytest.raises(PipelineError, match=reason):
            run_job("archive", *iceberg(broker_process, "sold", tmp_path / "new", "--table", wrong))
    with pytest.raises(OptionError, match="not in Iceberg"):
        run_job("archive", *iceberg(broker_process, "sold", tmp_path / "none", "--values", "batches"))


def test_dead_letters_that_can_be_decoded_later_become_rows(broker_process: BrokerProcess, tmp_path: Path) -> None:
    topic = "retried"
    make_topic(broker_process, topic)
    old = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}
    values = [header + b"\x06" for header in (b"\0\0\0\0\x01", b"\0\0\0\0\x02") for _ in range(4)]
    produce(broker_process, topic, [*values, b"never decodable"])
    (tmp_path / "schema").write_text(json.dumps(old))
    root = tmp_path / "lake"
    known, both = (["--schema", f"{number}={tmp_path / 'schema'}"] for number in (1, 2))
    run_job("archive", *iceberg(broker_process, topic, root, "--values", "avro", *known))
    assert len(rows(root, "dead_letters")) == 5
    for _ in range(2):
        better = run_job("dead_letters", "--archive", str(root), "--retry", *known, *both)[0]
        assert len(rows(root, "dead_letters")) == 1
    assert better.rows == [(topic, 0, 1)]
    assert len(rows(root)) == 8
    run_job("dead_letters", "--archive", str(root), "--retry", *known, *both)
    # As if a writer had been killed before the manifest counted the entry: its publication is repeated.
    batch = Manifest(root, has_files=False).batches[1]
    assert batch.retried == [topic]
    IcebergTables(ArchiveDescription.read(root), Manifest(root, has_files=False)).publish(batch)  # type: ignore[arg-type]
    assert (len(rows(root)), len(rows(root, "dead_letters"))) == (8, 1)


def test_a_table_in_a_warehouse_of_s3_has_each_record_once(
    broker_process: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run dies after its commit to the table, and another completes it.

    The archive is in the same bucket; a catalog of SQL stands for those of REST, Hive and Glue.
    """
    pytest.importorskip("obstore", reason="stores need gregor-broker[s3]: `make pipeline` installs it")
    pytest.importorskip("moto", reason="the S3 server of the tests needs gregor-broker[spark-test]")
    from tests.pipeline.s3_server import s3_server

    topic = "warehoused"
    make_topic(broker_process, topic)
    with s3_server() as server:
        named = {
            "TYPE": "sql",
            "URI": f"sqlite:///{tmp_path / 'shop.db'}",
            "WAREHOUSE": f"s3://{server.bucket}/warehouse",
            "S3__ENDPOINT": server.environment["AWS_ENDPOINT_URL"],
            "S3__REGION": "us-east-1",
        }
        for key, text in named.items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__SHOP__{key}", text)
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        root = server.root("lake")
        command = arguments(
            broker_process, topic, root, "--format", "iceberg", "--values", "string", "--table", "shop.web.visits"
        )
        for _ in range(3):
            produce(broker_process, topic, [b"v%d" % number for number in range(9)] + [b"\xff"])
            with monkeypatch.context() as patch:
                patch.setattr(iceberg_tables, "_commit", after(iceberg_tables._commit))
                with pytest.raises(CrashError):
                    run_job("archive", *command)
            run_job("archive", *command)
        from pyiceberg.catalog import load_catalog

        visits = load_catalog("shop").load_table("web.visits")
        found = visits.scan().to_arrow().sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()
        expected = [
            (partition, offset) for partition in (0, 1) for offset in range(15) if partition == 0 or offset % 5 != 4
        ]
        assert [(row["partition"], row["offset"]) for row in found] == expected
        assert load_catalog("shop").load_table("web.visits_dead_letters").scan().to_arrow().num_rows == 3
        run_job("archive", *command, "--compact", "--keep-versions", "0")
        assert visits.refresh().scan().to_arrow().num_rows == len(expected)
        assert len(list(visits.scan().plan_files())) < 6
        replayed, _ = run_job(
            "replay", *("--archive", str(root), "--bootstrap-server", broker_process.bootstrap, "--prefix", "s3-")
        )
        assert [row[-1] for row in replayed.rows] == [15, 12]
        assert run_job("audit", "--archive", str(root), "--topics", topic)[0].is_clean
