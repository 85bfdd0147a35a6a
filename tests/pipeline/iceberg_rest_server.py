"""The REST catalog of Apache Iceberg's own tests, the reference implementation; Maven fetches it at the first use."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.free_ports import free_address
from tests.pipeline.maven_jars import Artifact, classpath

ICEBERG = "1.10.0"
LIMIT_S = 300.0
CLASS = "org.apache.iceberg.rest.RESTCatalogServer"
SIGN = "Started Server@"
ARTIFACTS: tuple[Artifact, ...] = (
    ("org.apache.iceberg", "iceberg-open-api", ICEBERG, "test-fixtures"),
    ("org.apache.iceberg", "iceberg-core", ICEBERG, "tests"),
    ("org.apache.iceberg", "iceberg-core", ICEBERG, ""),
    ("org.eclipse.jetty", "jetty-servlet", "11.0.26", ""),
    ("org.xerial", "sqlite-jdbc", "3.50.3.0", ""),
    ("org.slf4j", "slf4j-simple", "2.0.17", ""),
)


@contextlib.contextmanager
def rest_catalog(directory: Path) -> Iterator[str]:
    """Run a catalog with its warehouse in a directory; yield its URI. Skips the test where the jars cannot be had."""
    directory.mkdir()
    hadoop = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")
    jars = ":".join([classpath(directory, ARTIFACTS), *map(str, hadoop)])
    _, port = free_address()
    settings = {
        "CATALOG_WAREHOUSE": f"file://{directory / 'warehouse'}",
        "CATALOG_URI": f"jdbc:sqlite:{directory / 'catalog.db'}",
        "CATALOG_REST_PORT": str(port),
    }
    log = directory / "log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            ["java", "-Xmx256m", "-cp", jars, CLASS], env=os.environ | settings, stdout=output, stderr=output
        ) as server,
    ):
        try:
            deadline = time.monotonic() + LIMIT_S
            while SIGN not in log.read_text():
                if server.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(log.read_text()[-3000:])
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()
