"""`kafka-acls` of Apache Kafka 3.9.1 against a broker with an authorizer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_process import running_broker
from tests.conformance.test_kafka_tools import Kafka

pytestmark = pytest.mark.peer

ACLS = "kafka.admin.AclCommand"
SETTINGS = ("authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "super.users=User:ANONYMOUS")


@pytest.fixture
def kafka(shared: Path, tmp_path: Path) -> Iterator[Kafka]:
    script = shared / "peer" / "kafka39"
    if not script.exists() or shutil.which("java") is None:
        pytest.skip("Kafka's tools need ../shared/peer and a Java 17")
    with running_broker(tmp_path, *SETTINGS) as broker:
        yield Kafka(script, broker)


def test_acls_are_added_listed_and_removed(kafka: Kafka) -> None:
    kafka.run(ACLS, "--add", "--allow-principal", "User:alice", "--producer", "--idempotent", "--topic", "orders")
    by_prefix = ("--resource-pattern-type", "prefixed")
    kafka.run(ACLS, "--add", "--deny-principal", "User:eve", "--operation", "Read", "--topic", "ord", *by_prefix)
    listed = kafka.run(ACLS, "--list", "--topic", "orders", "--resource-pattern-type", "match")
    assert "(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)" in listed
    assert "name=ord, patternType=PREFIXED" in listed
    assert "(principal=User:eve, host=*, operation=READ, permissionType=DENY)" in listed
    assert "IDEMPOTENT_WRITE" in kafka.run(ACLS, "--list", "--cluster")
    kafka.run(ACLS, "--remove", "--force", "--topic", "orders", "--resource-pattern-type", "match")
    assert "TOPIC" not in kafka.run(ACLS, "--list")
