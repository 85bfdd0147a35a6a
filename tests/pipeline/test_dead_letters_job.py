"""Archives by the schemas of a registry, and what becomes of their dead letters: counts, copies, another decoding."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("grpc_tools", reason="schemas of a registry need gregor-broker[registry]")

from pyarrow import parquet

from gregor.pipeline.archive import compaction, dead_letters, manifest, writing
from gregor.pipeline.archive.manifest import Manifest
from gregor.pipeline.errors import OptionError, PipelineError, RegistryError
from gregor.pipeline.jobs import replay as replay_job
from gregor.pipeline.jobs.desk import Summary
from gregor.pipeline.values import registry as registry_module
from gregor.pipeline.values.wire_format import write_header
from gregor.security.login_rules import RetryRules
from tests.broker_process import BrokerProcess
from tests.pipeline.archive_rows import arguments, make_topic, produce, rows_of
from tests.pipeline.job_desk import run_job, run_tasks_here
from tests.pipeline.schema_registry import SchemaRegistry, running_registry
from tests.pipeline.stored import records_of
from tests.pipeline.test_schema_registry import PLAIN, WIDENED, avro


@pytest.fixture(autouse=True)
def _tasks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (writing, compaction, dead_letters, replay_job):
        monkeypatch.setattr(module, "run_tasks", run_tasks_here)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SchemaRegistry]:
    """Provide an empty registry; unknown ids are looked up each time, failures not again."""
    monkeypatch.setattr(registry_module, "FORGET_UNKNOWN_S", 0.0)
    monkeypatch.setattr(registry_module, "RetryRules", lambda: RetryRules(most_s=0.0))
    with running_registry() as registry:
        yield registry


def total(summary: Summary, column: int, reasons: Collection[str] = ()) -> int:
    """Return the sum of a column, of the rows with these reasons if there are any."""
    return sum(int(str(row[column])) for row in summary.rows if not reasons or row[2] in reasons)


def letters_of(root: Path) -> list[dict[str, Any]]:
    """Return the valid dead letters in order."""
    found = [
        row for path in Manifest(root).files(manifest.DEAD_LETTERS) for row in parquet.read_table(path).to_pylist()
    ]
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def test_protobuf_and_json_schema_become_columns(
    broker_process: BrokerProcess, tmp_path: Path, server: SchemaRegistry
) -> None:
    make_topic(broker_process, "clicks", 1)
    number = server.register(
        "clicks-value", 'syntax = "proto3"; message C { string page = 1; int32 n = 2; }', "PROTOBUF"
    )
    produce(broker_process, "clicks", [write_header(number, (0,)) + b"\x0a\x04home\x10\x07", b"no", None], 1)
    by_registry = ["--values", "protobuf", "--schema-registry", server.url]
    summary, _ = run_job("archive", *arguments(broker_process, "clicks", tmp_path / "p", *by_registry))
    assert summary.rows == [("clicks", 0, 0, 3, 2, 1)]
    assert [row["value"] for row in rows_of(tmp_path / "p")] == [{"page": "home", "n": 7}, None]

    make_topic(broker_process, "visits", 1)
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    number = server.register("any subject/at all", schema, "JSON")
    header = write_header(number)
    produce(broker_process, "visits", [header + b'{"n": 1}', header + b'{"n": 0}'], 1)
    by_registry = ["--values", "json-schema", "--schema-registry", server.url, "--subject", "any subject/at all:1"]
    run_job("archive", *arguments(broker_process, "visits", tmp_path / "j", *by_registry))
    assert [row["value"] for row in rows_of(tmp_path / "j")] == [{"n": 1}]
    assert [row["reason"] for row in letters_of(tmp_path / "j")] == ["ValueError: $.n: 0 is less than the minimum of 1"]


def test_dead_letters_are_counted_copied_and_decoded_again(
    broker_process: BrokerProcess, tmp_path: Path, server: SchemaRegistry
) -> None:
    make_topic(broker_process, "orders")
    server.register("orders-value", WIDENED)
    later = 101
    values = [avro(100, WIDENED, {"n": number, "note": None}) for number in range(4)]
    values += [avro(later, PLAIN, {"n": number}) for number in range(4, 10)]
    produce(broker_process, "orders", [*values, b"never decodable", None])
    by_registry = ["--values", "avro", "--schema-registry", server.url]
    summary, _ = run_job("archive", *arguments(broker_process, "orders", tmp_path, *by_registry))
    assert total(summary, 5) == 7
    counts, _ = run_job("dead_letters", "--archive", str(tmp_path))
    unknown = f"UnknownSchemaError: the registry has no schemas/ids/{later}: Schema {later} not found"
    assert total(counts, 3, {unknown}) == 6
    assert total(counts, 3) == 7

    to_topic = ["--bootstrap-server", broker_process.bootstrap, "--prefix", "dead-", "--dead-letters"]
    copied, _ = run_job("replay", "--archive", str(tmp_path), *to_topic)
    assert total(copied, 3) == 7
    again, _ = run_job("replay", "--archive", str(tmp_path), *to_topic)
    assert total(again, 3) == 0, "exactly once"
    found = [row for partition in (0, 1) for row in records_of(broker_process, "dead-orders", partition)]
    letters = letters_of(tmp_path)
    assert [row["value"] for row in found] == [row["value"] for row in letters]
    told = [{each["key"]: each["value"] for each in row["headers"]} for row in found]
    assert [each["h"] for each in told] == [b"1"] * 7, "the record's own headers"
    assert [int(each["__connect.errors.offset"]) for each in told] == [row["offset"] for row in letters]
    assert {each["__connect.errors.topic"] for each in told} == {b"orders"}
    assert told[0]["__connect.errors.exception.message"].decode() == letters[0]["reason"]

    retry = ["--archive", str(tmp_path), "--retry", "--schema-registry", server.url]
    nothing, _ = run_job("dead_letters", *retry)
    assert nothing.rows == [("orders", 0, 7)]
    assert letters_of(tmp_path) == letters, "without a better result nothing changes"
    assert server.register("orders-value", PLAIN) == later
    with pytest.raises(PipelineError, match="name the version of the archive by --subject NAME:VERSION"):
        run_job("dead_letters", *retry)
    better, _ = run_job("dead_letters", *retry, "--subject", "orders-value:1")
    assert better.rows == [("orders", 6, 1)]
    assert sorted(row["value"]["n"] for row in rows_of(tmp_path) if row["value"]) == list(range(10))
    assert [row["value"] for row in letters_of(tmp_path)] == [b"never decodable"]
    assert not list((tmp_path / "staged").rglob("*.parquet"))
    run_job("archive", *arguments(broker_process, "orders", tmp_path, *by_registry, "--subject", "orders-value:1"))
    assert len(rows_of(tmp_path)) == 11, "later runs of the archive find nothing new"


def test_a_registry_that_fails_makes_no_dead_letters(
    broker_process: BrokerProcess, tmp_path: Path, server: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(broker_process, "away", 1)
    number = server.register("away-value", PLAIN)
    produce(broker_process, "away", [avro(number, PLAIN, {"n": 1})], 1)
    command = arguments(broker_process, "away", tmp_path, "--values", "avro", "--schema-registry", server.url)

    def fail_later(*given: Any) -> Any:
        server.refusal = 503
        return run_tasks_here(*given)

    with monkeypatch.context() as patch:
        patch.setattr(writing, "run_tasks", fail_later)
        with pytest.raises(RegistryError, match="HTTP status 503"):
            run_job("archive", *command)
    server.refusal = None
    summary, _ = run_job("archive", *command)
    assert summary.rows == [("away", 0, 0, 1, 1, 0)]


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--values", "protobuf"], "values in protobuf need --schema-registry"),
        (["--values", "avro", "--subject", "s"], "--subject and --message need --schema-registry"),
        (["--values", "avro", "--schema-registry", "http://h", "--schema", "x"], "give --schema or --schema-registry"),
        (["--values", "avro", "--schema-registry", "h:1"], "schema.registry.url must be like http://host:8081"),
        (["--values", "avro", "--registry-config", "no-such-file"], "cannot read no-such-file: No such file"),
    ],
)
def test_invalid_schema_options_are_refused(
    broker_process: BrokerProcess, tmp_path: Path, more: list[str], complaint: str
) -> None:
    if json.dumps(more).count("no-such-file") == 0:
        make_topic(broker_process, f"refused-{abs(hash(complaint))}", 1)
    with pytest.raises(OptionError, match=complaint):
        run_job("archive", "--bootstrap-server", broker_process.bootstrap, "--archive", str(tmp_path / "a"), *more)


def test_dead_letters_refuses_invalid_arguments(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="is not an archive"):
        run_job("dead_letters", "--archive", str(tmp_path))
    with pytest.raises(OptionError, match="schemas are for --retry"):
        run_job("dead_letters", "--archive", str(tmp_path), "--schema", "x")
    command = ["--archive", str(tmp_path), "--bootstrap-server", "127.0.0.1:1", "--dead-letters", "--where", "true"]
    with pytest.raises(PipelineError, match="--where takes rows"):
        run_job("replay", *command)
