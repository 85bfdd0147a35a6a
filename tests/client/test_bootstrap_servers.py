"""The addresses in bootstrap.servers: what Kafka's `Utils.HOST_PORT_PATTERN` accepts, and a default port."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.client.errors import ConfigError
from gregor.client.wire.cluster import parse_servers


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("kafka", [("kafka", 9092)]),
        ("a:1, b_2.x-y:2", [("a", 1), ("b_2.x-y", 2)]),
        ("[::1]:5,[fe80::1%eth0]", [("::1", 5), ("fe80::1%eth0", 9092)]),
        ("::1:5", [("::1", 5)]),
        ("PLAINTEXT://kafka:1,SSL://[::1]:2", [("kafka", 1), ("::1", 2)]),
    ],
)
def test_hosts_and_ports_are_read(servers: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_servers(servers) == addresses


@pytest.mark.parametrize(
    "servers", ["", ":1", "a:", "a:b", "a:0", "a:65536", "a:1,", "a b:1", "[::1", "::1", "a:1;b:2", "a/b:1"]
)
def test_malformed_addresses_are_refused(servers: str) -> None:
    with pytest.raises(ConfigError, match="must be HOST:PORT"):
        parse_servers(servers)


@pytest.mark.parametrize("servers", [None, 9092, b"kafka:9092", [], ["kafka:9092", 5], [b"kafka:9092"]])
def test_values_that_are_no_addresses_are_refused(servers: Any) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        parse_servers(servers)
