"""Groups and transactions on three brokers: their coordinators, and fail-over without loss of confirmed state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from gregor.client import Consumer, Producer
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.find_coordinator import FindCoordinatorRequest
from gregor.protocol.messages.heartbeat import HeartbeatRequest
from tests.broker.controller.cluster_calls import create
from tests.cluster_of_processes import ClusterOfProcesses, running_cluster, until
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

SETTINGS = (
    "broker.session.timeout.ms=4000",
    "broker.heartbeat.interval.ms=200",
    "offsets.topic.num.partitions=3",
    "transaction.state.log.num.partitions=3",
    "group.initial.rebalance.delay.ms=0",
)
GROUP, TRANSACTION = 0, 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterOfProcesses]:
    """Provide three brokers, for tests that kill."""
    with running_cluster(tmp_path, 3, *SETTINGS) as running:
        yield running


def coordinator(cluster: ClusterOfProcesses, through: int, key: str, key_type: int) -> int:
    """Wait for the coordinator of a group or transactional id in one broker's answer; return it."""

    def found() -> int:
        with cluster.wire(through) as wire:
            answer = wire.ask(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key=key, key_type=key_type))
        return int(answer.node_id) if answer.error_code == ErrorCode.NONE else 0

    return until(found)


def survivor(cluster: ClusterOfProcesses, *dead: int) -> int:
    """Return a broker that runs, and is not the controller if that can be."""
    return max(node_id for node_id in cluster.brokers if node_id not in dead)


def heartbeat(cluster: ClusterOfProcesses, node_id: int) -> int:
    """Return a broker's error for the heartbeat of an unknown member, once the group's partition is loaded."""
    request = HeartbeatRequest(group_id="g", member_id="nobody", generation_id=1)

    def answered() -> int:
        with cluster.wire(node_id) as wire:
            code = int(wire.ask(ApiKey.HEARTBEAT, 4, request).error_code)
        return code if code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else 0

    return until(answered)


def test_brokers_other_than_the_group_coordinator_answer_not_coordinator(cluster: ClusterOfProcesses) -> None:
    home = coordinator(cluster, 1, "g", GROUP)
    assert {coordinator(cluster, node_id, "g", GROUP) for node_id in cluster.brokers} == {home}
    for node_id in cluster.brokers:
        expected = ErrorCode.UNKNOWN_MEMBER_ID if node_id == home else ErrorCode.NOT_COORDINATOR
        until(lambda node_id=node_id, expected=expected: heartbeat(cluster, node_id) == expected)  # type: ignore[misc]


async def next_values(cluster: ClusterOfProcesses, group: str, through: int, count: int) -> list[bytes | None]:
    """Read the given number of further values for a group, and commit."""
    values: list[bytes | None] = []
    async with Consumer(cluster.brokers[through].bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        with trio.fail_after(PATIENCE_S):
            while len(values) < count:
                values.append((await anext(consumer)).value)
        await consumer.commit()
    return values


async def test_committed_offsets_outlive_their_coordinator(cluster: ClusterOfProcesses) -> None:
    create(cluster, 1, "t", partitions=1, replicas=3)
    through = survivor(cluster)
    async with Producer(cluster.bootstrap, acks="all") as producer:
        for number in range(10):
            await producer.send("t", b"%d" % number)
    group = next(g for g in map(str, range(50)) if coordinator(cluster, through, g, GROUP) == 2)
    assert await next_values(cluster, group, through, 10) == [b"%d" % number for number in range(10)]
    cluster.brokers[2].kill()
    until(lambda: coordinator(cluster, through, group, GROUP) != 2)
    async with Producer(cluster.brokers[through].bootstrap, acks="all") as producer:
        await producer.send("t", b"later")
    assert await next_values(cluster, group, through, 1) == [b"later"]


async def read_committed(bootstrap: str, *, partitions: int = 1, last_values: int = 1) -> list[bytes | None]:
    """Return the committed records of the topic up to the given number of records "last"."""
    values: list[bytes | None] = []
    async with Consumer(bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([("t", index) for index in range(partitions)])
        with trio.fail_after(PATIENCE_S):
            async for record in consumer:
                values.append(record.value)
                if values.count(b"last") == last_values:
                    break
    return values


@pytest.mark.parametrize("commits", [True, False])
async def test_a_transaction_over_all_brokers_ends_everywhere(cluster: ClusterOfProcesses, commits: bool) -> None:
    create(cluster, 1, "t", partitions=6, replicas=2)
    transactional_id = next(i for i in map(str, range(50)) if coordinator(cluster, 3, i, TRANSACTION) == 3)
    async with Producer(cluster.bootstrap, transactional_id=transactional_id) as producer:
        for _ in range(3):
            try:
                async with producer.transaction():
                    for partition in range(6):
                        await producer.send("t", b"x", partition=partition)
                    if not commits:
                        raise RuntimeError("changed my mind")
            except RuntimeError:
                assert not commits
        async with producer.transaction():
            for partition in range(6):
                await producer.send("t", b"last", partition=partition)
    values = await read_committed(cluster.bootstrap, last_values=6, partitions=6)
    assert values.count(b"x") == (18 if commits else 0)


async def test_a_transaction_survives_its_coordinator(cluster: ClusterOfProcesses) -> None:
    create(cluster, 1, "t", partitions=1, replicas=3)
    transactional_id = next(i for i in map(str, range(50)) if coordinator(cluster, 1, i, TRANSACTION) == 2)
    async with Producer(cluster.bootstrap, transactional_id=transactional_id) as producer, producer.transaction():
        await producer.send("t", b"before")
        cluster.brokers[2].kill()
        await producer.send("t", b"last")
    assert await read_committed(cluster.brokers[1].bootstrap) == [b"before", b"last"]
