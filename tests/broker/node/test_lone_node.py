"""A lone broker's start: no task of the broker runs between its monitoring's start and its readiness."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from gregor.broker.config import BrokerConfig
from gregor.broker.metadata.store import MetadataStore
from gregor.broker.node.lone_node import LoneNode
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.storage.clock import SystemClock


@pytest.fixture
def node(tmp_path: Path) -> LoneNode:
    config = BrokerConfig({"node.id": "4", "log.dirs": str(tmp_path)})
    return LoneNode(MetadataStore(config, SystemClock()))


async def wait_for_directories() -> None:
    await trio.sleep_forever()


async def test_the_life_cycle_of_a_lone_node_lets_no_other_task_run(node: LoneNode, nursery: trio.Nursery) -> None:
    with trio.testing.assert_no_checkpoints():
        assert await node.find_cluster_id() is None
        await node.start(nursery, lambda: pytest.fail("a lone broker has no roles"), wait_for_directories)
        await node.wait_until_unfenced()
        await node.leave()
    assert not nursery.child_tasks


@pytest.mark.parametrize(
    ("broker_id", "code"), [(4, ErrorCode.INVALID_REQUEST), (5, ErrorCode.BROKER_ID_NOT_REGISTERED)]
)
def test_no_broker_can_be_unregistered(node: LoneNode, broker_id: int, code: ErrorCode) -> None:
    with pytest.raises(BrokerError) as refused:
        node.unregister(broker_id)
    assert refused.value.code == code
