"""Schemas of a registry that change while `archive --follow` runs: no field of any record is lost."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("fastavro", reason="schemas of a registry need gregor-broker[registry]")

import fastavro

from gregor.pipeline.archive import writing
from gregor.pipeline.archive.description import Values
from gregor.pipeline.archive.manifest import ManifestError
from gregor.pipeline.archive.value_formats import ValueFormat
from gregor.pipeline.errors import OptionError, PipelineError
from gregor.pipeline.jobs import archive as archive_job
from gregor.pipeline.jobs.desk import Summary
from gregor.pipeline.values.wire_format import write_header
from tests.broker_process import BrokerProcess
from tests.pipeline.archive_rows import arguments, make_topic, produce, rows_of
from tests.pipeline.job_desk import run_job, run_tasks_once
from tests.pipeline.schema_registry import SchemaRegistry, running_registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[..., object]


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as running:
        yield running


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "run_tasks", run_tasks_once)


def optional(name: str, kind: str, *aliases: str) -> dict[str, Any]:
    """Return a field that may be null."""
    return {"name": name, "type": ["null", kind], "default": None, "aliases": list(aliases)}


VERSIONS: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
    ([optional("n", "int"), optional("name", "string")], {"n": 1, "name": "Ada"}),
    ([optional("n", "int"), optional("name", "string"), optional("page", "string")], {"n": 2, "page": "/new"}),
    ([optional("n", "long"), optional("name", "string"), optional("page", "string")], {"n": 2**40, "name": "Eva"}),
    ([optional("n", "long"), optional("who", "string", "name"), optional("page", "string")], {"who": "Ben", "n": 4}),
    ([optional("n", "long"), optional("who", "string", "name")], {"who": "Cy"}),
]
"""The fields of each version, and a value: a field is added, one becomes wider, one has a new name, one is dropped."""


def written(registry: SchemaRegistry, topic: str, version: int) -> bytes:
    """Register a version as a producer does; return its value."""
    fields, value = VERSIONS[version]
    schema = {"type": "record", "name": "Visit", "fields": fields}
    number = registry.register(f"{topic}-value", schema)
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, value)
    return write_header(number) + body.getvalue()


class Followed:
    """A topic whose producer takes the next of some versions after each round of the job that follows it."""

    def __init__(self, broker: BrokerProcess, registry: SchemaRegistry, topic: str, root: Path) -> None:
        self.topic, self.root = topic, root
        self._broker, self._registry = broker, registry
        make_topic(broker, topic, 1)

    def send(self, version: int) -> None:
        """Write a record of a version."""
        produce(self._broker, self.topic, [written(self._registry, self.topic, version)], 1)

    def follow(self, run: Run, monkeypatch: pytest.MonkeyPatch, versions: list[int], *more: str) -> None:
        """Run the job until it has archived a record of each version."""
        left = list(versions)

        def next_version(interval_s: float) -> None:
            if not left:
                raise KeyboardInterrupt
            self.send(left.pop(0))

        monkeypatch.setattr(archive_job, "time", SimpleNamespace(sleep=next_version))
        options = ["--follow", "--values", "avro", "--schema-registry", self._registry.url, *more]
        run("archive", *arguments(self._broker, self.topic, self.root, *options))


def present(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without their null fields."""
    return [{name: field for name, field in row.items() if field is not None} for row in rows]


EVOLVED = [
    {"n": 1, "who": "Ada"},
    {"n": 2, "page": "/new"},
    {"n": 2**40, "who": "Eva"},
    {"n": 4, "who": "Ben"},
    {"who": "Cy"},
]


def test_a_table_of_iceberg_follows_the_schema(
    without_spark: None,
    broker_process: BrokerProcess,
    registry: SchemaRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pyiceberg", reason="archives in Iceberg need gregor-broker[iceberg]")
    from pyiceberg.catalog.sql import SqlCatalog

    topic = Followed(broker_process, registry, "followed-iceberg", tmp_path)
    topic.send(0)
    topic.follow(run_job, monkeypatch, [1, 2, 3, 4, 0], "--format", "iceberg")
    table = SqlCatalog("archive", uri=f"sqlite:///{tmp_path / 'catalog.db'}").load_table("archive.data")
    rows = table.scan().to_arrow().sort_by("offset").to_pylist()
    assert present(row["value"] for row in rows) == [*EVOLVED, EVOLVED[0]], "the last one by an old producer"
    asked = [path for path in registry.asked if path.startswith("/subjects/")]
    assert len(asked) == 7, "once at the start, then once for each round that has records"


@pytest.mark.peer
def test_a_table_of_delta_lake_follows_the_schema(
    in_spark: Callable[..., Summary],
    spark: SparkSession,
    broker_process: BrokerProcess,
    registry: SchemaRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("delta", reason="archives in Delta Lake need gregor-broker[delta]")
    topic = Followed(broker_process, registry, "followed-delta", tmp_path)
    topic.send(0)
    try:
        topic.follow(in_spark, monkeypatch, [2, 4], "--format", "delta")
    except PipelineError as fault:
        if "Spark has no Delta Lake" in str(fault):
            pytest.skip(str(fault))
        raise
    rows = spark.read.format("delta").load(str(tmp_path / "data")).orderBy("offset").collect()
    assert present(row.value.asDict() for row in rows) == [EVOLVED[version] for version in (0, 2, 4)]


def test_a_version_that_is_named_stays(
    without_spark: None,
    broker_process: BrokerProcess,
    registry: SchemaRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = Followed(broker_process, registry, "named-version", tmp_path)
    topic.send(0)
    topic.follow(run_job, monkeypatch, [1], "--subject", "named-version-value:1")
    assert present(row["value"] for row in rows_of(tmp_path)) == [VERSIONS[0][1], {"n": 2}]


def test_a_schema_that_an_archive_cannot_have_ends_the_job_before_its_records_are_archived(
    without_spark: None,
    broker_process: BrokerProcess,
    registry: SchemaRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = Followed(broker_process, registry, "in-files", tmp_path / "files")
    files.send(0)
    with pytest.raises(ManifestError, match=r"only archives in tables .* \(--subject NAME:VERSION\)"):
        files.follow(run_job, monkeypatch, [1])
    files.follow(run_job, monkeypatch, [], "--subject", "in-files-value:1")
    assert len(rows_of(tmp_path / "files")) == 2

    pytest.importorskip("pyiceberg", reason="archives in Iceberg need gregor-broker[iceberg]")
    narrower = Followed(broker_process, registry, "narrower", tmp_path / "narrower")
    narrower.send(2)
    with pytest.raises(ManifestError, match=r"value\.n is int64 in the table, and the schema makes it int32"):
        narrower.follow(run_job, monkeypatch, [0], "--format", "iceberg")
    field = Followed(broker_process, registry, "by-field", tmp_path / "field")
    field.send(2)
    with pytest.raises(OptionError, match="values have no field page to partition by"):
        field.follow(run_job, monkeypatch, [4], "--format", "iceberg", "--by-field", "page")


def test_schemas_in_files_are_not_looked_for_again(tmp_path: Path) -> None:
    (tmp_path / "schema").write_text(json.dumps({"type": "record", "name": "r", "fields": [optional("n", "int")]}))
    given = ValueFormat.from_options(Values.JSON, [str(tmp_path / "schema")])
    assert given.newest() is given
