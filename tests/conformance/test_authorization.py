"""Answers of each API to clients with and without each right, beside the recorded ones of Kafka 3.9.1."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.api.table import APIS
from gregor.protocol.apis import ApiKey
from tests.broker_process import running_broker
from tests.conformance.authorization_cases import CASES
from tests.conformance.authorization_run import interview, recorded, served_versions
from tests.conformance.conftest import running_kafka

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS = (
    f"authorizer.class.name={STANDARD_AUTHORIZER}",
    "allow.everyone.if.no.acl.found=true",
    "group.coordinator.rebalance.protocols=classic,consumer",
)
SAME_AS_THE_PEER = (
    "node.id=1",
    "num.partitions=1",
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.num.partitions=4",
    "transaction.state.log.num.partitions=4",
)
WITHOUT_RIGHTS = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    # Refused to clients that are not authenticated; their rights are those of delegation tokens.
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
BETTER_THAN_KAFKA = {
    # Version 1 has no error field, and Kafka's answer is empty: consumers would read that as "no offset is committed".
    "offset fetch v1: no right",
}


@pytest.fixture(scope="module", autouse=True)
def many_addresses() -> None:
    """Skip the test if the system has no further loopback addresses."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.1.0.1", 0))
        except OSError:
            pytest.skip("127.0.0.0/8 has one address here, and the clients differ by theirs")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Provide Gregor's answers to all requests."""
    versions, _ = recorded()
    with running_broker(tmp_path_factory.mktemp("authorized"), *SETTINGS, *SAME_AS_THE_PEER) as broker:
        yield interview(broker.address, versions)


def test_the_cases_cover_every_advertised_api() -> None:
    assert {case.key for case in CASES} | WITHOUT_RIGHTS == {key for key, api in APIS.items() if api.is_advertised}


def test_every_response_equals_that_of_kafka_except_known_differences(answers: dict[str, Any]) -> None:
    _, expected = recorded()
    assert expected.keys() == answers.keys()
    different = {label for label in expected if answers[label] != expected[label]}
    details = {label: (expected[label], answers[label]) for label in different - BETTER_THAN_KAFKA}
    assert different == BETTER_THAN_KAFKA, details


@pytest.mark.peer
def test_the_recorded_responses_equal_those_of_kafka(shared: Path) -> None:
    with running_kafka(shared, *SETTINGS) as bootstrap:
        host, _, port = bootstrap.rpartition(":")
        address = (host, int(port))
        versions = served_versions(address)
        answers = interview(address, versions)
    assert (versions, answers) == recorded()
