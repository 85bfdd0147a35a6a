"""The list of clients that still need the gateway: `gregor clients`, and metrics."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from gregor.command_line import main
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.api_versions import ApiVersionsRequest
from gregor.protocol.records import v2
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record
from tests.free_ports import free_address
from tests.gateway.kafka_4 import gateway_before_kafka_4
from tests.gateway.test_old_versions import fetch, message_set, new_topic, produce
from tests.waiting import PATIENCE_S
from tests.wire import Wire


def test_old_clients_are_listed_with_their_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the versions that Kafka 4 refuses; clients that it serves are not in the shorter list."""
    with gateway_before_kafka_4(tmp_path, {"gregor.metrics.listener": "http://127.0.0.1:0"}) as pair:
        with Wire(pair.address, client_id="shipper-2013") as old:
            topic = new_topic(old)
            produce(old, 0, topic, message_set(0, 2))
            fetch(old, 1, topic)
        with Wire(pair.address, client_id="new") as new:
            request = ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.0.0")
            new.ask(ApiKey.API_VERSIONS, 3, request)
        address = pair.gateway.metrics_address
        assert address is not None
        with urllib.request.urlopen(f"http://127.0.0.1:{address.port}/metrics") as page:
            metrics = page.read().decode()
        with urllib.request.urlopen(f"http://127.0.0.1:{address.port}/readyz") as page:
            assert page.status == 200
        bootstrap = f"{pair.address[0]}:{pair.address[1]}"
        assert main(["clients", "--bootstrap-server", bootstrap, "--refused"]) == 0
    shown = capsys.readouterr().out
    assert "shipper-2013" in shown
    assert "Kafka 4 refuses" in shown
    assert "2 records" in shown
    assert "apache-kafka-java" not in shown
    assert 'gregor_client_deprecated_requests_total{clientId="shipper-2013"' in metrics
    assert 'kafka_network_requestmetrics_deprecatedrequests_total{request="Fetch",version="1"' in metrics
    assert "gregor_gateway_buffer_memory_used_bytes 0" in metrics


def test_consumers_that_are_refused_zstd_are_listed_with_the_key_that_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Consumers of 0.9 say nothing of an error that they do not know: without this list nobody finds the reason."""
    with gateway_before_kafka_4(tmp_path) as pair:
        with Wire(pair.address, client_id="consumer-2015") as old, Wire(pair.upstream_address) as new:
            topic = new_topic(old)
            batch = bytes(v2.build_batch([Record(0, 1, None, b"v" * 100)], codec=Codec.ZSTD))
            assert produce(new, 7, topic, batch).error_code == ErrorCode.NONE
            for _ in range(2):
                assert fetch(old, 1, topic).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert main(["clients", "--bootstrap-server", f"{pair.address[0]}:{pair.address[1]}"]) == 0
    shown = capsys.readouterr().out
    assert "2 fetches were refused, as the client does not read zstd: set gregor.message.downconversion.zstd" in shown


def test_consumers_with_zookeepers_protocol_are_listed_and_the_gateway_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka 4 has no ZooKeeper, so these consumers need the gateway; its own requests for metadata do not count."""
    host, port = free_address()
    with gateway_before_kafka_4(tmp_path, {"gregor.zookeeper.listeners": f"zookeeper://{host}:{port}"}) as pair:
        with Wire(pair.address, client_id="new") as wire:
            topic = new_topic(wire)
        clients = ["clients", "--bootstrap-server", f"{pair.address[0]}:{pair.address[1]}"]
        assert main(clients) == 0
        assert "zookeeper" not in capsys.readouterr().out
        consumer = KazooClient(hosts=f"{host}:{port}")
        consumer.start(PATIENCE_S)
        try:
            consumer.exists(f"/consumers/g/offsets/{topic}/0")
        finally:
            consumer.stop()
            consumer.close()
        assert main([*clients, "--refused"]) == 0
    shown = capsys.readouterr().out
    assert "zookeeper" in shown
    assert "Kafka 4 refuses ZooKeeper's protocol" in shown
