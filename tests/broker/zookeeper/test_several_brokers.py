"""ZooKeeper's nodes on brokers of a cluster: groups with coordinators elsewhere, topics that the controller creates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadArgumentsError

from tests.broker_process import BrokerProcess
from tests.cluster_of_processes import ClusterOfProcesses, running_cluster
from tests.waiting import PATIENCE_S, wait_until

GROUPS = [f"group-{number}" for number in range(6)]
ADDRESS = re.compile(r"ZooKeeper's protocol at zookeeper://(\S+)")


def zookeeper_of(broker: BrokerProcess) -> str:
    """Return the address of a broker's listener, once it has one."""
    wait_until(lambda: ADDRESS.search(broker.output()) is not None)
    found = ADDRESS.search(broker.output())
    assert found is not None
    return found[1]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterOfProcesses]:
    """Provide three brokers, each with a listener, whose internal topic has a partition for each of them at least."""
    settings = (
        "gregor.zookeeper.listeners=zookeeper://127.0.0.1:0",
        "offsets.topic.num.partitions=6",
        "offsets.topic.replication.factor=1",
        "broker.session.timeout.ms=3000",
    )
    with running_cluster(tmp_path, 3, *settings) as running:
        yield running


def test_all_brokers_show_the_same_topics_leaders_and_group_offsets(cluster: ClusterOfProcesses) -> None:
    clients = []
    for node_id in (2, 3):
        client = KazooClient(hosts=zookeeper_of(cluster.brokers[node_id]))
        client.start(PATIENCE_S)
        clients.append(client)
    second, third = clients
    try:
        wait_until(lambda: second.get_children("/brokers/ids") == ["1", "2", "3"])
        ports = [json.loads(second.get(f"/brokers/ids/{node_id}")[0])["port"] for node_id in (1, 2, 3)]
        assert ports == [cluster.brokers[node_id].address[1] for node_id in (1, 2, 3)]
        with pytest.raises(BadArgumentsError):
            second.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[9]}}')
        second.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[3,2],"1":[2,1]}}')
        state = "/brokers/topics/t/partitions/0/state"
        wait_until(lambda: all(client.exists(state) is not None for client in clients))
        for client in clients:
            assert json.loads(client.get("/brokers/topics/t")[0])["partitions"] == {"0": [3, 2], "1": [2, 1]}
        for number, group in enumerate(GROUPS):
            second.create(f"/consumers/{group}/offsets/t/0", str(number).encode(), makepath=True)
        for number, group in enumerate(GROUPS):
            assert third.get(f"/consumers/{group}/offsets/t/0")[0] == str(number).encode()
            third.set(f"/consumers/{group}/offsets/t/0", str(number + 100).encode())
            assert second.get(f"/consumers/{group}/offsets/t/0")[0] == str(number + 100).encode()
        assert set(second.get_children("/consumers")) == set(GROUPS)
        wait_until(lambda: json.loads(second.get(state)[0])["leader"] == 3)
        events: list[str] = []
        second.get(state, watch=lambda event: events.append(event.type))
        cluster.brokers[3].kill()
        wait_until(lambda: events == ["CHANGED"])
        wait_until(lambda: json.loads(second.get(state)[0])["leader"] == 2)
        assert second.get_children("/brokers/ids") == ["1", "2"]
    finally:
        for client in clients:
            client.stop()
            client.close()
