"""Listeners of a gateway: IPv6 on both sides, and several listeners with ports for each broker."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.metadata import MetadataRequest
from tests.free_ports import free_address
from tests.gateway.kafka_4 import gateway_before_kafka_4
from tests.gateway.test_old_versions import fetch, message_set, new_topic, produce, records_of
from tests.wire import Wire


def two_ports() -> int:
    """Return a port that is free, as is the next one: those of brokers 0 and 1."""
    first = free_address()[1]
    while (following := free_address()[1]) != first + 1:
        first = following
    return first


def has_ipv6() -> bool:
    """Return whether this machine has the address ::1."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def shown_brokers(address: tuple[str, int]) -> list[tuple[int, str, int]]:
    """Return the brokers in Metadata v0, after a client of 0.8 has written and read a record at ``address``."""
    with Wire(address) as wire:
        topic = new_topic(wire)
        assert not produce(wire, 0, topic, message_set(0, 3)).error_code
        assert b"v2" in records_of(fetch(wire, 0, topic))
        answer = wire.ask(ApiKey.METADATA, 0, MetadataRequest(topics=[]))
        return [(broker.node_id, broker.host, broker.port) for broker in answer.brokers]


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 address ::1")
@pytest.mark.parametrize("has_broker_ports", [False, True], ids=["one address", "ports"])
def test_both_sides_of_a_gateway_have_ipv6(tmp_path: Path, has_broker_ports: bool) -> None:
    first = two_ports()
    properties = {"listeners": "PLAINTEXT://[::1]:0"}
    if has_broker_ports:
        properties["gregor.gateway.broker.ports"] = f"{first}-{first + 1}"
    with gateway_before_kafka_4(tmp_path, properties, host="[::1]") as pair:
        port = pair.gateway.listening[0].port
        expected = (1, "::1", first + 1) if has_broker_ports else (0, "::1", port)
        assert shown_brokers(("::1", port)) == [expected]


def test_each_listener_has_its_ports_of_brokers(tmp_path: Path) -> None:
    """A client gets the ports that have the security and the advertised host of the listener that it knows."""
    first, second = two_ports(), two_ports()
    properties = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "advertised.listeners": "OUTSIDE://gateway.example:9092",
        "gregor.gateway.broker.ports": f"{first}-{first + 1},{second}-{second + 1}",
    }
    with gateway_before_kafka_4(tmp_path, properties) as pair:
        inside, outside = (("127.0.0.1", endpoint.port) for endpoint in pair.gateway.listening[:2])
        of_inside, of_outside = (1, "127.0.0.1", first + 1), (1, "gateway.example", second + 1)
        assert shown_brokers(inside) == [of_inside]
        assert shown_brokers(outside) == [of_outside]
        assert shown_brokers(("127.0.0.1", of_inside[2])) == [of_inside]
        assert shown_brokers(("127.0.0.1", of_outside[2])) == [of_outside]


def test_a_broker_without_a_port_is_named_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    port = free_address()[1]
    properties = {"gregor.gateway.broker.ports": f"{port}-{port}"}
    with gateway_before_kafka_4(tmp_path, properties) as pair:
        address = ("127.0.0.1", pair.gateway.listening[0].port)
        with Wire(address) as wire:
            for _ in range(2):
                assert wire.ask(ApiKey.METADATA, 0, MetadataRequest(topics=[])).brokers == []
    said = f"clients cannot reach broker 1, which would have port {port + 1}: extend the range"
    assert caplog.text.count(said) == 1
