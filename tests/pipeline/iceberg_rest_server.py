"""The REST catalog of Apache Iceberg's own tests, the reference implementation; Maven fetches it at the first use."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.free_ports import free_address

ICEBERG = "1.10.0"
LIMIT_S = 300.0
CLASS = "org.apache.iceberg.rest.RESTCatalogServer"
SIGN = "Started Server@"
ARTIFACTS = (
    ("org.apache.iceberg", "iceberg-open-api", ICEBERG, "test-fixtures"),
    ("org.apache.iceberg", "iceberg-core", ICEBERG, "tests"),
    ("org.apache.iceberg", "iceberg-core", ICEBERG, ""),
    ("org.eclipse.jetty", "jetty-servlet", "11.0.26", ""),
    ("org.xerial", "sqlite-jdbc", "3.50.3.0", ""),
    ("org.slf4j", "slf4j-simple", "2.0.17", ""),
)


def project() -> str:
    """Return a Maven project that depends on the server."""
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        + (f"<classifier>{classifier}</classifier>" if classifier else "")
        + "</dependency>"
        for group, name, version, classifier in ARTIFACTS
    )
    place = (
        "<modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>rest</artifactId><version>1</version>"
    )
    return f"<project>{place}<dependencies>{dependencies}</dependencies></project>"


@contextlib.contextmanager
def rest_catalog(directory: Path) -> Iterator[str]:
    """Run a catalog with its warehouse in a directory; yield its URI. Skips the test where the jars cannot be had."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("a REST catalog needs Maven and Java")
    directory.mkdir()
    (directory / "pom.xml").write_text(project())
    command = ["mvn", "-q", "-f", str(directory / "pom.xml"), "dependency:build-classpath"]
    command.append(f"-Dmdep.outputFile={directory / 'classpath'}")
    fetched = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if fetched.returncode:
        pytest.skip(f"the jars of a REST catalog could not be had: {fetched.stdout[-300:]}")
    hadoop = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")
    jars = ":".join([(directory / "classpath").read_text(), *map(str, hadoop)])
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
