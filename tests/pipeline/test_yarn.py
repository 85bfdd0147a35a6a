"""Jobs on Yarn: each runs in containers that Yarn starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

import pyspark

from tests.broker_process import GREGOR, BrokerProcess
from tests.pipeline.archive_rows import make_topic, produce, rows_of
from tests.pipeline.yarn_cluster import yarn_cluster

pytestmark = pytest.mark.peer

LIMIT_S = 600.0


def test_an_archive_is_written_by_containers_of_yarn(broker_process: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker_process, "contained")
    produce(broker_process, "contained", [b"v%d" % number for number in range(100)])
    settings = {
        # Otherwise the client uploads all of Spark first.
        "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent / 'jars'}/*",
        "spark.yarn.stagingDir": f"file://{tmp_path}",
        "spark.executor.instances": "1",
        "spark.executor.cores": "2",
        "spark.executor.memory": "512m",
    }
    confs = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    job = ["--bootstrap-server", broker_process.bootstrap, "--topics", "contained", "--archive", str(tmp_path / "lake")]
    with yarn_cluster(tmp_path / "yarn") as configuration:
        done = subprocess.run(
            [sys.executable, *GREGOR, "pipeline", "archive", "--master", "yarn", *confs, *job, "--format", "parquet"],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=os.environ | {"HADOOP_CONF_DIR": str(configuration), "PYSPARK_PYTHON": sys.executable},
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        assert len(rows_of(tmp_path / "lake")) == 100
        logs = (tmp_path / "yarn").rglob("container_*_000002/stderr")
        assert any("Finished task" in log.read_text() for log in logs)
