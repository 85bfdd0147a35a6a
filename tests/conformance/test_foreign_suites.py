"""The integration tests of kafka-python and confluent-kafka-python, where they take a bootstrap address.

Their releases come without them: `GREGOR_FOREIGN_SUITES` names a folder with checkouts of both. What is expected to
fail here fails in the same way against Apache Kafka 3.9.1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import venv
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.broker_process import running_broker

pytestmark = pytest.mark.peer

ENVIRONMENTS = Path.home() / ".cache" / "gregor-foreign-suites"
LIMIT_S = 3600.0
SETTINGS = (
    "node.id=0",
    "num.partitions=4",
    "group.initial.rebalance.delay.ms=0",
    "group.min.session.timeout.ms=1000",
    "offsets.topic.num.partitions=4",
    "transaction.state.log.num.partitions=4",
)
"""Settings that the suites give to a cluster which they start themselves."""

NO_AUTHORIZER = "makes ACLs, for which a broker needs an authorizer"


@dataclass(frozen=True)
class Suite:
    """A project's tests; `{bootstrap}` is replaced by the broker's address."""

    checkout: str
    packages: tuple[str, ...]
    paths: tuple[str, ...]
    environment: dict[str, str]
    folders_to_make: tuple[str, ...] = ()
    fails_on_kafka_too: dict[str, str] = field(default_factory=dict)


SUITES = (
    Suite(
        "kafka-python",
        ("crc32c", "lz4", "python-snappy", "zstandard", "pytest", "pytest-timeout", "pytest-mock", "py"),
        tuple(f"test/integration/test_{what}_integration.py" for what in ("admin", "consumer", "producer")),
        {"KAFKA_URI": "kafka://{bootstrap}", "KAFKA_VERSION": "3.9.1"},
        ("servers/3.9.1/kafka-bin",),
        {
            "test_create_describe_delete_acls": NO_AUTHORIZER,
            "test_describe_configs_broker_resource_returns_configs": "wants advertised.listeners to be no setting",
        },
    ),
    Suite(
        "confluent-kafka-python",
        (
            "confluent-kafka[avro,schemaregistry]==2.15.0",
            "pytest",
            "pytest-timeout",
            "pytest-asyncio",
            "async-timeout",
            "trivup",
            "requests",
        ),
        tuple(f"tests/integration/{what}" for what in ("admin", "consumer", "producer")),
        {"BROKERS": "{bootstrap}"},
        (),
        {
            "test_basic_operations": NO_AUTHORIZER,
            "test_incremental_alter_configs": "wants min.insync.replicas among a new topic's settings, as in Kafka 4",
            "test_describe_operations": "downloads a Kafka for SASL",
        },
    ),
)


def python_with(suite: Suite) -> Path:
    """Return an interpreter with the packages that the suite needs."""
    home = ENVIRONMENTS / suite.checkout
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *suite.packages], check=True)
        (home / "ready").touch()
    return python


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.checkout)
def test_tests_of_a_foreign_suite_pass_that_pass_with_kafka(suite: Suite, tmp_path: Path) -> None:
    checkouts = os.environ.get("GREGOR_FOREIGN_SUITES")
    if not checkouts or not (Path(checkouts) / suite.checkout).is_dir():
        pytest.skip(f"no checkout of {suite.checkout} in GREGOR_FOREIGN_SUITES")
    source = tmp_path / "source"
    shutil.copytree(Path(checkouts) / suite.checkout, source, ignore=shutil.ignore_patterns("src", ".git"))
    for folder in suite.folders_to_make:
        (source / folder).mkdir(parents=True)
    command = [str(python_with(suite)), "-m", "pytest", "-q", "--timeout", "120", "-p", "no:cacheprovider", "-rfE"]
    with running_broker(tmp_path / "broker", *SETTINGS) as broker:
        wanted = {name: value.format(bootstrap=broker.bootstrap) for name, value in suite.environment.items()}
        run = subprocess.run(
            [*command, *suite.paths],
            cwd=source,
            env={**os.environ, "PYTHONPATH": str(source), **wanted},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    print(run.stdout[-3000:])
    failed = set(re.findall(r"^(?:FAILED|ERROR) \S+?::(\w+)", run.stdout, re.MULTILINE))
    assert failed == set(suite.fails_on_kafka_too)
    assert int(re.findall(r"(\d+) passed", run.stdout)[-1]) >= 20
