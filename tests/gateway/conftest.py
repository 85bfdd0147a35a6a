"""A gateway in front of a broker that refuses what Kafka 4 refuses, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.kafka_4 import GatewayAndBroker, gateway_before_kafka_4
from tests.wire import Wire


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayAndBroker]:
    """Provide a gateway with one address for all, and its broker."""
    with gateway_before_kafka_4(tmp_path_factory.mktemp("upstream")) as running:
        yield running


@pytest.fixture
def old(pair: GatewayAndBroker) -> Iterator[Wire]:
    """Provide a client of the gateway."""
    with Wire(pair.address) as wire:
        yield wire


@pytest.fixture
def direct(pair: GatewayAndBroker) -> Iterator[Wire]:
    """Provide a client of the broker behind the gateway."""
    with Wire(pair.upstream_address) as wire:
        yield wire
