"""The example `examples/orders`, run as its README says: with Gregor, and with Kafka 4 behind a gateway."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("delta", reason="the example needs gregor-broker[delta]")

from gregor.pipeline.kafka.topic_making import make_topics
from gregor.pipeline.kafka.wire import WireSettings
from tests.broker_process import BrokerProcess
from tests.conformance.conftest import running_kafka
from tests.gateway.kafka_4 import gateway_before
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.peer

PROJECT = Path(__file__).resolve().parents[2] / "examples" / "orders"
SHARED = PROJECT.parents[2] / "shared"
CLIENTS = ("kafka-python>=3", "confluent-kafka")
EXAMPLE = re.compile(r"```sh\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
TOPICS = {"tills": 1, "web": 3}
KAFKA_4 = "4.3.0"
ATTEMPTS = 3


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a directory with the clients of the example."""
    site = tmp_path_factory.mktemp("clients")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(site), *CLIENTS]
    installed = subprocess.run(install, capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False)
    if installed.returncode:
        pytest.skip(f"the clients cannot be installed here: {installed.stderr.strip()[-300:]}")
    return site


def run(line: str, folder: Path, clients: Path) -> str:
    """Run a line of the README in a directory; return what it printed.

    Spark gives its Python processes ten seconds to start, which is too short on a busy machine; the program continues
    where it has ended.
    """
    program, *arguments = line.split()
    assert program == "python"
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(clients)},
            capture_output=True,
            text=True,
            timeout=20 * PATIENCE_S,
            check=False,
        )
        if "failed to connect back" not in done.stderr:
            break
    if "could not be had" in done.stderr or "JAVA_GATEWAY_EXITED" in done.stderr:
        pytest.skip(f"no Spark with Delta Lake here: {done.stderr[-300:]}")
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr[-3000:]}"
    return done.stdout


def settings(bootstrap: str) -> WireSettings:
    """Return the settings of a connection to these brokers."""
    return WireSettings.from_options({"kafka.bootstrap.servers": bootstrap})


def examples() -> list[tuple[list[str], str]]:
    """Return the commands of each example of the README, and what they print."""
    found = EXAMPLE.findall((PROJECT / "README.md").read_text())
    assert len(found) == 2
    return [(commands.splitlines(), printed) for commands, printed in found]


def test_the_orders_example_runs_with_gregor(broker_process: BrokerProcess, clients: Path, tmp_path: Path) -> None:
    make_topics(settings(broker_process.bootstrap), TOPICS)
    folder = shutil.copytree(PROJECT, tmp_path / "orders")
    for commands, printed in examples():
        lines = [line.replace("localhost:9092", broker_process.bootstrap) for line in commands]
        assert "".join(run(line, folder, clients) for line in lines) == printed
    assert "plotly" in (folder / "shop" / "page.html").read_text()


def test_the_orders_example_runs_with_kafka_4_behind_a_gateway(clients: Path, tmp_path: Path) -> None:
    if not SHARED.is_dir():
        pytest.skip("no ../shared beside this checkout: its Kafka is needed here")
    folder = shutil.copytree(PROJECT, tmp_path / "orders")
    with running_kafka(SHARED, release=KAFKA_4) as kafka, gateway_before(kafka) as gateway:
        make_topics(settings(kafka), TOPICS)
        commands, printed = examples()[0]
        tills, *others = commands
        lines = [tills.replace("localhost:9092", f"127.0.0.1:{gateway.listening[0].port}")]
        lines += [line.replace("localhost:9092", kafka) for line in others]
        assert "".join(run(line, folder, clients) for line in lines) == printed
