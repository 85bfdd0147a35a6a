"""Archives in tables whose schema evolves, that are partitioned by fields, and that are in a catalog."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("delta", reason="archives in Delta Lake need gregor-broker[delta]")

from gregor.pipeline.archive.manifest import ManifestError
from gregor.pipeline.delta_lake import delta_session
from gregor.pipeline.errors import OptionError, PipelineError
from gregor.pipeline.jobs.desk import Summary
from tests.broker_process import BrokerProcess
from tests.pipeline import job_desk
from tests.pipeline.archive_rows import arguments, make_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.peer

Run = Callable[..., Summary]
Field = dict[str, Any]


@pytest.fixture(autouse=True)
def _has_delta(in_spark: Run) -> None:
    try:
        delta_session(job_desk.TestDesk())
    except PipelineError as fault:
        pytest.skip(str(fault))


def schema(folder: Path, *fields: Field) -> list[str]:
    """Write an Avro schema of visits with these fields, all of which may be absent; return the options for it."""
    optional = [{**field, "type": ["null", field["type"]], "default": None} for field in fields]
    path = folder / "visit.avsc"
    path.write_text(json.dumps({"type": "record", "name": "Visit", "fields": optional}))
    return ["--values", "json", "--schema", str(path)]


def visits(broker: BrokerProcess, topic: str, *values: dict[str, Any]) -> None:
    """Produce JSON values, in order, to one partition."""
    produce(broker, topic, [json.dumps(value).encode() for value in values], 1)


def decoded(spark: SparkSession, table: str) -> list[dict[str, Any]]:
    """Return the table's values in the order of offsets, without null fields."""
    rows = spark.sql(f"SELECT value FROM {table} ORDER BY offset").collect()
    return [{name: field for name, field in row.value.asDict(True).items() if field is not None} for row in rows]


def test_columns_are_added_widened_renamed_and_dropped(
    in_spark: Run, spark: SparkSession, broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "evolving", 1)
    root, table = tmp_path / "lake", f"delta.`{tmp_path / 'lake' / 'data'}`"
    command = arguments(broker_process, "evolving", root, "--format", "delta")
    count, name = {"name": "n", "type": "int"}, {"name": "name", "type": "string"}
    home: dict[str, Any] = {"type": "record", "name": "Home", "fields": [{"name": "city", "type": "string"}]}
    visits(broker_process, "evolving", {"n": 1, "name": "Ada", "ratio": 0.5, "home": {"city": "Bern"}})
    ratio = {"name": "ratio", "type": "float"}
    in_spark("archive", *command, *schema(tmp_path, count, name, ratio, {"name": "home", "type": home}))

    # n and ratio are wider, name and home.city have other names, home has a new field.
    visits(broker_process, "evolving", {"n": 2**40, "who": "Ben", "ratio": 0.1, "home": {"town": "Rome", "zip": 7}})
    wide: dict[str, Any] = {**home, "fields": [{"name": "town", "type": "string", "aliases": ["city"]}]}
    wide["fields"] += [{"name": "zip", "type": ["null", "long"], "default": None}]
    who = {"name": "who", "type": "string", "aliases": ["name"]}
    long, double = {**count, "type": "long"}, {**ratio, "type": "double"}
    wider = schema(tmp_path, long, who, double, {"name": "home", "type": wide})
    in_spark("archive", *command, *wider)
    assert decoded(spark, table) == [
        {"n": 1, "who": "Ada", "ratio": 0.5, "home": {"town": "Bern", "zip": None}},
        {"n": 2**40, "who": "Ben", "ratio": 0.1, "home": {"town": "Rome", "zip": 7}},
    ]

    # A field that the schema drops stays in the table, and a new one is null in old rows.
    visits(broker_process, "evolving", {"n": 3, "page": "/"})
    in_spark("archive", *command, *schema(tmp_path, long, {"name": "page", "type": "string"}))
    assert decoded(spark, table)[2] == {"n": 3, "page": "/"}
    assert decoded(spark, table)[0]["who"] == "Ada"

    with pytest.raises(ManifestError, match=r"value\.n is int64 in the table, and the schema makes it int32"):
        in_spark("archive", *command, *schema(tmp_path, count))
    with pytest.raises(ManifestError, match=r"value\.n is int64 in the table, and the schema makes it string"):
        in_spark("archive", *command, *schema(tmp_path, {**count, "type": "string"}))
    assert len(decoded(spark, table)) == 3


def test_a_table_of_a_spark_catalog_is_partitioned_by_fields_of_the_value(
    in_spark: Run, spark: SparkSession, broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "sold", 1)
    spark.sql(f"CREATE DATABASE IF NOT EXISTS shop LOCATION '{tmp_path / 'warehouse'}'")
    address = {"type": "record", "name": "Address", "fields": [{"name": "country", "type": "string"}]}
    fields = schema(tmp_path, {"name": "n", "type": "int"}, {"name": "to", "type": address})
    command = arguments(broker_process, "sold", tmp_path / "lake", "--format", "delta", *fields)
    command += ["--by-field", "to.country", "--by-field", "n", "--table", "spark_catalog.shop.sold"]
    countries = ["SE", "a/b=c é%", "", None, "SE"]
    values = [
        {"n": n % 2, "to": {"country": country} if country is not None else None} for n, country in enumerate(countries)
    ]
    visits(broker_process, "sold", *values, {"n": "no number"})
    in_spark("archive", *command)
    visits(broker_process, "sold", *values)
    in_spark("archive", *command, "--compact", "--keep-versions", "0")
    rows = spark.sql("SELECT to_country, n, count(*) c FROM shop.sold GROUP BY ALL ORDER BY ALL").collect()
    assert [tuple(row) for row in rows] == [(None, 0, 2), (None, 1, 2), ("SE", 0, 4), ("a/b=c é%", 1, 2)]
    assert spark.sql("SELECT offset FROM shop.sold_dead_letters").first().offset == 5
    # The files of earlier versions are gone.
    files = {
        Path(name) for name in (tmp_path / "warehouse" / "sold").rglob("*.parquet") if "_delta_log" not in str(name)
    }
    assert len(files) == len(spark.table("shop.sold").inputFiles()) == 4
    spark.sql("DROP DATABASE shop CASCADE")


def test_invalid_partition_fields_and_table_names_are_refused(
    in_spark: Run, broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "odd", 1)
    fields = schema(tmp_path, {"name": "ratio", "type": "double"}, {"name": "topic", "type": "string"})
    command = arguments(broker_process, "odd", tmp_path / "lake")
    for more, reason in (
        ([*fields, "--by-field", "ratio"], "field ratio is double"),
        ([*fields, "--by-field", "nowhere.at.all"], "values have no field nowhere.at.all"),
        ([*fields, "--by-field", "topic"], "name of another column, topic"),
        (["--by-field", "ratio"], "values have no field ratio"),
        (["--table", "a.b.c"], "needs a format of tables"),
    ):
        with pytest.raises(OptionError, match=reason):
            in_spark("archive", *command, *more)
    assert not (tmp_path / "lake" / "archive.json").exists()
