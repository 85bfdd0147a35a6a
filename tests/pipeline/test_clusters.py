"""Jobs on a cluster that shares no files with the driver, and in a server of Spark Connect; archives in S3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("obstore", reason="stores need gregor-broker[s3]: `make pipeline` installs it")
pytest.importorskip("moto", reason="the S3 server of the tests needs gregor-broker[spark-test]")

from gregor.pipeline.archive.manifest import Manifest
from tests.broker_process import GREGOR, BrokerProcess
from tests.conformance.secured_gregor import Secured, secured_gregor
from tests.pipeline.archive_rows import arguments, make_topic, produce, rows_of
from tests.pipeline.job_desk import run_job
from tests.pipeline.s3_server import S3Server, s3_server
from tests.pipeline.schema_registry import running_registry
from tests.pipeline.spark_cluster import HOME, connect_server, standalone_cluster

pytestmark = pytest.mark.peer

LIMIT_S = 900.0


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


def run(*command: str) -> dict[str, Any]:
    """Run a job as a program; return what it prints for programs."""
    done = subprocess.run(
        [sys.executable, *GREGOR, "pipeline", command[0], "--json", *command[1:]],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_there_and_back(broker: BrokerProcess, server: S3Server, topic: str, where: list[str]) -> None:
    """Archive a skewed topic in the store, compare it, and replay it."""
    make_topic(broker, topic)
    produce(broker, topic, [b"v%d" % number for number in range(200)])
    root = server.root(topic)
    archived = run("archive", *where, *arguments(broker, topic, root, "--max-bytes", "4000", "--compact"))
    assert [row["rows"] for row in archived["rows"]] == [100, 100]
    assert [(row["partition"], row["offset"]) for row in rows_of(root)] == [(p, o) for p in (0, 1) for o in range(100)]
    audit = ["--archive", str(root), "--topics", topic, "--against-bootstrap-server", broker.bootstrap]
    assert [row["compared"] for row in run("audit", *where, *audit)["rows"]] == ["the same"] * 2
    replay = ["--archive", str(root), "--bootstrap-server", broker.bootstrap, "--prefix", "again-"]
    assert [row["records"] for row in run("replay", *where, *replay)["rows"]] == [100, 100]
    where_seven = ["--prefix", "seven-", "--where", "CAST(value AS STRING) LIKE '%7'"]
    chosen = run("replay", *where, *replay[:4], *where_seven)
    assert sum(row["records"] for row in chosen["rows"]) == 20
    assert Manifest(root).next_number > 1


def test_jobs_run_on_spark_workers_that_have_only_python_and_the_package(
    broker_process: BrokerProcess, server: S3Server, tmp_path: Path
) -> None:
    package = tmp_path / "gregor.tar.gz"
    run_job("package", "--output", str(package))
    with tarfile.open(package) as archive:
        names = set(archive.getnames())
    assert {"gregor/__init__.py", "gregor/pipeline/spark_tasks.py", "trio/__init__.py"} <= names
    assert not {name for name in names if name.startswith(("pyspark/", "gregor/tests", "gregor/.venv"))}
    with standalone_cluster(tmp_path) as master:
        where = ["--master", master, "--package", str(package), "--conf", "spark.executor.memory=512m"]
        assert_there_and_back(broker_process, server, "clustered", where)
        with secured_gregor(tmp_path / "secured") as secured:
            submitted(secured, server, tmp_path, master)


def submitted(broker: Secured, server: S3Server, folder: Path, master: str) -> None:
    """Run a job by spark-submit, with the program that was written beside the package, on a broker with SASL_SSL.

    The certificate is a file in the driver's directory, which the executors do not have in theirs.
    """
    make_topic(broker, "secret")
    produce(broker, "secret", [b"v%d" % number for number in range(200)])
    root = server.root("submitted")
    login = folder / "client.properties"
    login.write_text((broker.files / "client.properties").read_text().replace(f"{broker.files}/", ""))
    assert "ssl.truststore.location=ca.pem" in login.read_text()
    from_broker = ["--bootstrap-server", broker.sasl, "--topics", "secret", "--command-config", str(login)]
    settings = {
        "spark.executorEnv.PYTHONPATH": "./gregor-package",
        "spark.pyspark.python": "python3",
        "spark.pyspark.driver.python": sys.executable,
    }
    confs = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    archive = ["--archives", f"{folder / 'gregor.tar.gz'}#gregor-package"]
    done = subprocess.run(
        [
            *(str(HOME / "bin" / "spark-submit"), "--master", master, *archive, *confs, str(folder / "gregor_job.py")),
            *("archive", "--json", *from_broker, "--archive", str(root), "--format", "parquet"),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=broker.files,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert len(rows_of(root)) == 200


def test_jobs_run_in_a_spark_connect_server(broker_process: BrokerProcess, server: S3Server, tmp_path: Path) -> None:
    with connect_server(tmp_path / "connect") as address:
        assert_there_and_back(broker_process, server, "connected", ["--remote", address])
        stats = ["--bootstrap-server", broker_process.bootstrap, "--topics", "connected"]
        assert sum(row["records"] for row in run("stats", "--remote", address, *stats)["rows"]) == 200
        with running_registry() as registry:
            program = [sys.executable, "-c", VALUES_THERE_AND_BACK, address, broker_process.bootstrap, registry.url]
            done = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.split() == ["1", "one", "2", "two", "3", "None"]


VALUES_THERE_AND_BACK = """
import sys

from gregor.pipeline.session import spark_session
from gregor.pipeline.values.frames import decode_values, encode_values

address, bootstrap, url = sys.argv[1:]
spark = spark_session(remote=address)
broker, registry = {"kafka.bootstrap.servers": bootstrap}, {"schema.registry.url": url}
schema = '{"type": "record", "name": "V", "fields": [{"name": "name", "type": ["null", "string"]}]}'
words = [("1", ("one",)), ("2", ("two",)), ("3", (None,))]
rows = spark.createDataFrame(words, "key string, value struct<name: string>")
encoded = encode_values(rows, registry, "words-value", schema=schema, register=True)
encoded.selectExpr("CAST(key AS BINARY) AS key", "value").write.format("kafka_raw").mode("append").options(
    **broker, topic="words"
).save()
stream = spark.readStream.format("kafka_raw").options(**broker, subscribe="words", startingOffsets="earliest").load()
query = decode_values(stream, registry, "words-value").writeStream.format("memory").queryName("words")
query.trigger(availableNow=True).start().awaitTermination()
for row in sorted(spark.table("words").collect(), key=lambda row: bytes(row.key)):
    print(bytes(row.key).decode(), row.value.name)
"""
