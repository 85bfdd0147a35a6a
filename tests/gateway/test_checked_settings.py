"""Settings with which a gateway could serve no client: one line says which key, before the start."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gregor.broker.config import BrokerConfig, ConfigError
from gregor.gateway.gateway import Gateway

VALID = {"listeners": "PLAINTEXT://:9092", "gregor.gateway.upstream": "kafka:9092"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"gregor.gateway.upstream": "kafka:9092,localhost:9092"},
            "localhost:9092 is an address of the gateway itself; change it or listeners",
        ),
        ({"gregor.gateway.upstream": "localhost"}, "localhost:9092 is an address of the gateway itself"),
        ({"gregor.gateway.upstream": "kafka:9092;kafka-2:9092"}, "must be HOST:PORT"),
        ({"listeners": "PLAINTEXT://kafka:9092"}, "kafka:9092 is an address of the gateway itself"),
        (
            {"gregor.gateway.upstream": "localhost:9101", "gregor.gateway.broker.ports": "9100-9105"},
            "localhost:9101 is an address of the gateway itself; change it or gregor.gateway.broker.ports",
        ),
        ({"gregor.gateway.broker.ports": "9090-9095"}, "port 9092 is also that of PLAINTEXT"),
        (
            {"listeners": "PLAINTEXT://:9092,SSL://:9093", "gregor.gateway.broker.ports": "9100-9105"},
            "write a range for each of the 2 listeners",
        ),
        (
            {"listeners": "PLAINTEXT://:9092,SSL://:9093", "gregor.gateway.broker.ports": "9100-9105,9105-9110"},
            "port 9105 is also that of a broker at PLAINTEXT",
        ),
        (
            {"listeners": "SASL_PLAINTEXT://:9092", "gregor.gateway.sasl.pass.through": "true"},
            "listeners must be PLAINTEXT or SSL",
        ),
        (
            {"listeners": "SASL_PLAINTEXT://:9092", "sasl.enabled.mechanisms": "SCRAM-SHA-256"},
            "a gateway stores no SCRAM credentials",
        ),
    ],
)
def test_settings_that_a_gateway_cannot_serve_are_refused(changes: Mapping[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Gateway(BrokerConfig({**VALID, **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"listeners": "PLAINTEXT://127.0.0.1:0", "gregor.gateway.upstream": "localhost:9092"},
        {"listeners": "PLAINTEXT://localhost:9093", "gregor.gateway.upstream": "localhost:9092"},
        {"listeners": "SASL_PLAINTEXT://:9092", "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"},
        {"gregor.gateway.sasl.pass.through": "true"},
        {"listeners": "PLAINTEXT://:9092,SSL://:9093", "gregor.gateway.broker.ports": "9100-9105, 9106-9110"},
    ],
)
def test_settings_that_a_gateway_can_serve_are_accepted(changes: Mapping[str, str]) -> None:
    Gateway(BrokerConfig({**VALID, **changes}))
