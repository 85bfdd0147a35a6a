"""Archives in tables of a REST catalog: crashes at a commit, other programs' commits, new schemas, compaction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyiceberg", reason="archives in Iceberg need gregor-broker[iceberg]")

from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from gregor.pipeline.archive import iceberg_compaction, iceberg_tables, writing
from gregor.pipeline.errors import PipelineError
from tests.broker_process import BrokerProcess
from tests.pipeline.archive_rows import arguments, make_topic, produce
from tests.pipeline.iceberg_rest_server import rest_catalog
from tests.pipeline.job_desk import run_job, run_tasks_once

pytestmark = pytest.mark.peer


class CrashError(Exception):
    """An error at the point where the driver is killed."""


def test_a_table_of_a_rest_catalog_has_each_record_once(
    broker_process: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (writing, iceberg_compaction):
        monkeypatch.setattr(module, "run_tasks", run_tasks_once)
    topic, name = "resting", {"name": "name", "type": "string"}
    schema, root = tmp_path / "schema", tmp_path / "lake"
    make_topic(broker_process, topic)
    commit = iceberg_tables._commit

    def commits_after_another_program(table: Any, change: Any) -> None:
        with load_catalog("shop").load_table(table.name()).transaction() as other:
            other.set_properties(touched="yes")
        commit(table, change)

    def commits_and_crashes(table: Any, change: Any) -> None:
        commit(table, change)
        raise CrashError

    with rest_catalog(tmp_path / "catalog") as uri:
        monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "rest")
        monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", uri)
        # PyIceberg reads its configuration when it is imported.
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        command = arguments(broker_process, topic, root, "--format", "iceberg", "--table", "shop.web.visits")
        command += ["--values", "json", "--schema", str(schema)]
        for number, kind in enumerate(("int", "long")):
            fields = [{"name": "n", "type": kind}, name][: 1 + number]
            fields[1:] = [{**field, "default": "?"} for field in fields[1:]]
            schema.write_text(json.dumps({"type": "record", "name": "R", "fields": fields}))
            produce(broker_process, topic, [b'{"n": %d}' % n for n in range(9)] + [b"no JSON"])
            with monkeypatch.context() as patch:
                patch.setattr(iceberg_tables, "_commit", commits_and_crashes)
                with pytest.raises(CrashError):
                    run_job("archive", *command)
            run_job("archive", *command)
            produce(broker_process, topic, [b'{"n": 7}'])
            with monkeypatch.context() as patch:
                patch.setattr(iceberg_tables, "_commit", commits_after_another_program)
                run_job("archive", *command)
        visits = load_catalog("shop").load_table("web.visits")
        assert visits.properties["touched"] == "yes"
        found = visits.scan().to_arrow().sort_by([("partition", "ascending"), ("offset", "ascending")])
        assert (found.num_rows, len(set(zip(found["partition"], found["offset"], strict=True)))) == (20, 20)
        assert {row["value"].get("name") for row in found.to_pylist()} == {None, "?"}
        assert load_catalog("shop").load_table("web.visits_dead_letters").scan().to_arrow().num_rows == 2
        run_job("archive", *command, "--compact", "--keep-versions", "0")
        again = visits.refresh().scan().to_arrow().sort_by([("partition", "ascending"), ("offset", "ascending")])
        assert again == found
        assert len(list(visits.scan().plan_files())) == 1
    produce(broker_process, topic, [b'{"n": 1}'])
    with pytest.raises(PipelineError, match=r"catalog shop of shop\.web\.visits"):
        run_job("archive", *command)
