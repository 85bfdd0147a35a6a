"""ZooKeeper's protocol of a gateway: the upstream cluster's topics and groups behind the nodes."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadArgumentsError, NoNodeError

from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig
from gregor.broker.config.listeners import ListenerError
from gregor.gateway.gateway import Gateway
from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from gregor.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.free_ports import free_address
from tests.gateway.kafka_4 import GatewayAndBroker, gateway_before_kafka_4
from tests.waiting import PATIENCE_S, wait_until
from tests.wire import Wire

ASSIGNMENT = b'{"version":1,"partitions":{"0":[%d],"1":[%d]}}'
TOPIC_RESOURCE = 2


@pytest.fixture(params=["one address", "a port for each broker"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[GatewayAndBroker, KazooClient]]:
    """Provide a gateway in front of a broker like Kafka 4, and a session on the gateway's ZooKeeper listener."""
    host, port = free_address()
    settings = {"gregor.zookeeper.listeners": f"zookeeper://{host}:{port}", "gregor.gateway.metadata.refresh.ms": "100"}
    if request.param != "one address":
        # The first port of the range is reserved for a broker 0.
        _, own = free_address()[1], free_address()[1]
        settings["gregor.gateway.broker.ports"] = f"{own - 1}-{own}"
    with gateway_before_kafka_4(tmp_path, settings) as running:
        client = KazooClient(hosts=f"{host}:{port}")
        client.start(PATIENCE_S)
        try:
            yield running, client
        finally:
            client.stop()
            client.close()


def test_topics_brokers_and_offsets_in_zookeeper_are_those_of_upstream(
    pair: tuple[GatewayAndBroker, KazooClient],
) -> None:
    running, client = pair
    wait_until(lambda: len(client.get_children("/brokers/ids")) == 1)
    (node_id,) = client.get_children("/brokers/ids")
    node = json.loads(client.get(f"/brokers/ids/{node_id}")[0])
    with Wire((node["host"], node["port"])) as through_the_gateway:
        assert (node["host"], node["port"]) != running.upstream_address
        client.create("/config/topics/old", b'{"version":1,"config":{"retention.ms":"123456"}}')
        client.create("/brokers/topics/old", ASSIGNMENT % (int(node_id), int(node_id)))
        wait_until(lambda: client.exists("/brokers/topics/old/partitions/1/state") is not None)
        state = json.loads(client.get("/brokers/topics/old/partitions/1/state")[0])
        assert state["leader"] == int(node_id)
        described = through_the_gateway.ask(
            ApiKey.DESCRIBE_CONFIGS,
            1,
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=TOPIC_RESOURCE, resource_name="old", configuration_keys=["retention.ms"]
                    )
                ]
            ),
        )
        assert described.results[0].configs[0].value == "123456"
        client.create("/consumers/g/offsets/old/1", b"17", makepath=True)
    with Wire(running.upstream_address) as upstream:
        answer = upstream.ask(ApiKey.OFFSET_FETCH, 2, OffsetFetchRequest(group_id="g", topics=None))
        assert answer.topics[0].partitions[0].committed_offset == 17
    assert client.get_children("/consumers") == ["g"]
    assert client.get_children("/consumers/g/offsets/old") == ["1"]
    with pytest.raises(NoNodeError):
        client.get("/consumers/g/offsets/old/0")
    client.set("/config/topics/old", b'{"version":1,"config":{}}')
    with pytest.raises(BadArgumentsError):
        client.set("/config/topics/old", b'{"version":1,"config":{"retention.ms":"1"}}')
    client.create("/admin/delete_topics/old")
    wait_until(lambda: client.exists("/brokers/topics/old") is None)


@pytest.mark.parametrize("is_gateway", [True, False])
async def test_a_zookeeper_port_in_use_names_its_key(is_gateway: bool, tmp_path: Path) -> None:
    """Of all listeners, the user must know which one to change."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        keys = {"listeners": "PLAINTEXT://127.0.0.1:0", "gregor.zookeeper.listeners": f"zookeeper://127.0.0.1:{port}"}
        if is_gateway:
            running = Gateway(BrokerConfig({**keys, "gregor.gateway.upstream": "127.0.0.1:9"})).run(lambda: None)
        else:
            running = Broker(BrokerConfig({**keys, "log.dirs": str(tmp_path)})).run()
        with pytest.raises(ListenerError, match=rf":{port}: .*in use; change gregor\.zookeeper\.listeners "):
            await running
