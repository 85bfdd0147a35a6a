"""Spark as users have it: a master with a worker of other directories and an empty Python, and a Connect server."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from gregor.pipeline.session import prepare_environment
from tests.free_ports import free_address

HOME = Path(pyspark.__file__).parent
LIMIT_S = 300.0


@contextlib.contextmanager
def started(log: Path, sign: str, *command: str, **environment: str) -> Iterator[None]:
    """Run a program of Spark from its start, which a sign in its log tells, to its end by a signal."""
    prepare_environment()
    # The programs of Spark replace themselves by Java, so that the process to end is this one.
    settings = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(HOME), **environment}
    settings.pop("PYTHONPATH", None)
    with log.open("w") as output:
        program = subprocess.Popen(
            [str(HOME / "bin" / command[0]), *command[1:]], env=settings, cwd=log.parent, stdout=output, stderr=output
        )
        try:
            deadline = time.monotonic() + LIMIT_S
            while sign not in log.read_text():
                if program.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(log.read_text()[-3000:])
                time.sleep(0.1)
            yield
        finally:
            program.terminate()
            program.wait()


@contextlib.contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """Run a master and a worker; yield the master's address. The worker's PATH has a Python without any package."""
    port, web, worker_web = (free_address()[1] for _ in range(3))
    empty = directory / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(empty)], check=True)
    place = ["--host", "127.0.0.1", "--webui-port"]
    master = f"spark://127.0.0.1:{port}"
    for name in ("master", "worker"):
        (directory / name).mkdir()
    with (
        started(
            directory / "master" / "log",
            "I have been elected leader",
            *("spark-class", "org.apache.spark.deploy.master.Master", *place, str(web), "--port", str(port)),
        ),
        started(
            directory / "worker" / "log",
            "Successfully registered with master",
            *("spark-class", "org.apache.spark.deploy.worker.Worker", *place, str(worker_web), "--cores", "2"),
            *("--memory", "1g", "--work-dir", str(directory / "worker" / "apps"), master),
            PATH=f"{empty / 'bin'}:{os.environ['PATH']}",
        ),
    ):
        yield master


@contextlib.contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """Run a server of Spark Connect; yield its address."""
    _, port = free_address()
    directory.mkdir(exist_ok=True)
    settings = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    confs = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    with started(
        directory / "log",
        "Spark Connect server started",
        *("spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"),
        *("--driver-memory", "1g", *confs, "spark-internal"),
        PYSPARK_PYTHON=sys.executable,
    ):
        yield f"sc://127.0.0.1:{port}"
