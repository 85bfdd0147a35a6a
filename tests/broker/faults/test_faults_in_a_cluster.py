"""Faults between brokers: a link that is cut and heals, and requests that one broker sends on to the controller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig
from gregor.broker.faults.rule import SPARED_CLIENT_ID
from gregor.broker.metadata.state import ResourceType
from gregor.broker.node.membership import Membership
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.broker.faults.faulty_broker import FaultyBroker, ask
from tests.free_ports import free_address
from tests.waiting import PATIENCE_S

RULE = "gregor.fault.rule.r"


@dataclass
class Pair:
    """A cluster of node 1, broker and controller, and node 2, which follows it."""

    controller: FaultyBroker
    follower: FaultyBroker

    def rule(self, node: str, text: str) -> None:
        """Let this be the only rule of one node, or of both ("")."""
        metadata = self.controller.broker.services.metadata
        for target in ("", "1", "2"):
            metadata.set_configs(ResourceType.BROKER, target, {RULE: text} if text and target == node else {})


@pytest.fixture
async def pair(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Pair]:
    """Provide two nodes of one cluster in this process."""
    port = free_address()[1]
    shared = {
        "controller.quorum.voters": f"1@127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "gregor.fault.injection.enable": "true",
        "gregor.shutdown.timeout.ms": "0",
    }
    first = {"node.id": "1", "process.roles": "broker,controller", "log.dirs": str(tmp_path / "1")}
    second = {"node.id": "2", "process.roles": "broker", "log.dirs": str(tmp_path / "2")}
    client_listener = "PLAINTEXT://127.0.0.1:0"
    controller = Broker(
        BrokerConfig({**shared, **first, "listeners": f"{client_listener},CONTROLLER://127.0.0.1:{port}"})
    )
    follower = Broker(BrokerConfig({**shared, **second, "listeners": client_listener}))
    await nursery.start(controller.run)
    await nursery.start(follower.run)
    pair = Pair(FaultyBroker(controller), FaultyBroker(follower))
    with ExitStack() as connections:
        connections.callback(pair.controller.close)
        connections.callback(pair.follower.close)
        yield pair
    pair.rule("", "")
    nursery.cancel_scope.cancel()


async def until(holds: Callable[[], bool]) -> None:
    """Let the brokers work until the condition holds."""
    with trio.fail_after(PATIENCE_S):
        while not holds():
            await trio.lowlevel.checkpoint()


async def create(pair: Pair, topic: str, client_id: str = "tester") -> int:
    """Return the error code of creating a topic through the broker that is not the controller."""
    wire = await pair.follower.connect(client_id)
    request = CreateTopicsRequest(topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1)])
    return int((await ask(wire, ApiKey.CREATE_TOPICS, 5, request)).topics[0].error_code)


async def test_a_rule_acts_on_forwarded_requests_at_the_broker_of_the_client(pair: Pair) -> None:
    pair.rule("", "api=CreateTopics topic=bad error=POLICY_VIOLATION")
    await until(lambda: bool(pair.follower.broker.services.config.fault_rules))
    assert [await create(pair, topic) for topic in ("good", "bad")] == [0, ErrorCode.POLICY_VIOLATION]
    assert (pair.follower.strikes, pair.controller.strikes) == ({"r": 1}, {})
    assert set(pair.controller.broker.services.metadata.topics) == {"good"}


async def test_a_disconnected_broker_gets_no_metadata_until_the_rule_is_deleted(pair: Pair) -> None:
    faults = pair.controller.broker.services.faults
    assert faults is not None
    pair.rule("1", "broker=2 api=Fetch disconnect")
    await until(lambda: faults.strike_counts()["r"] > 0)
    pair.controller.broker.services.metadata.create_topic("news", assignments=[(0, [1])])
    assert "news" not in pair.follower.broker.services.metadata.topics
    pair.rule("1", "")
    await until(lambda: "news" in pair.follower.broker.services.metadata.topics)


@pytest.mark.parametrize("action", ["disconnect", "stall"])
async def test_network_rules_do_not_act_on_requests_of_a_node_to_itself(pair: Pair, action: str) -> None:
    pair.rule("1", f"api=AlterPartition {action}")
    membership = pair.controller.broker.services.node
    assert isinstance(membership, Membership)
    request = AlterPartitionRequest(broker_id=1, broker_epoch=-7)
    with trio.fail_after(PATIENCE_S):
        answer = await membership.link.ask(request, AlterPartitionResponse)
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_fault_rules_can_be_deleted_through_a_broker_whose_envelope_requests_fail(pair: Pair) -> None:
    pair.rule("1", "api=Envelope error=CLUSTER_AUTHORIZATION_FAILED")
    assert await create(pair, "a") == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await create(pair, "b", SPARED_CLIENT_ID) == 0
