"""Leaders whose disk is full or fails: leadership moves to in-sync replicas and back; sole replicas stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.controller.cluster_calls import create, fetched, produce
from tests.cluster_of_processes import NODE_ID, ClusterOfProcesses, running_cluster, until

pytestmark = pytest.mark.slow

SETTINGS = (
    "gregor.fault.injection.enable=true",
    "broker.heartbeat.interval.ms=100",
    "offsets.topic.num.partitions=1",
)
BROKER = 4
SET, DELETE = 0, 1


def disk_rule(cluster: ClusterOfProcesses, node_id: int, rule: str | None) -> None:
    """Let the disk of one broker fail by this rule, or work again."""
    change = AlterableConfig(name="gregor.fault.rule.r", config_operation=DELETE if rule is None else SET, value=rule)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=str(node_id), configs=[change])
    with cluster.wire(3) as wire:
        answer = wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == 0, answer


def in_sync(cluster: ClusterOfProcesses, topic: str) -> list[int]:
    return sorted(cluster.metadata(3, topic).topics[0].partitions[0].isr_nodes)


@pytest.mark.parametrize("full", [1, 2])
def test_a_broker_with_a_full_disk_gives_up_leadership_and_rejoins_the_isr_later(tmp_path: Path, full: int) -> None:
    """Broker 1 is also the controller."""
    with running_cluster(tmp_path, 3, *SETTINGS) as cluster:
        create(cluster, 3, "shared", on=[full, 3])
        create(cluster, 3, "alone", on=[full])
        for topic in ("shared", "alone"):
            assert produce(cluster, full, topic, 0, b"before") == 0
        disk_rule(cluster, full, "disk=append error=ENOSPC")
        until(lambda: produce(cluster, full, "shared", 0, b"refused") != ErrorCode.NONE)
        until(lambda: cluster.leaders(3, "shared") == [3] and in_sync(cluster, "shared") == [3])
        until(lambda: produce(cluster, 3, "shared", 0, b"meanwhile") == 0)
        assert cluster.leaders(3, "alone") == [full]
        assert b"before" in fetched(cluster, full, "alone", 0)[1]

        disk_rule(cluster, full, None)
        until(lambda: in_sync(cluster, "shared") == [full, 3])
        until(lambda: produce(cluster, full, "alone", 0, b"after") == 0)
        assert produce(cluster, 3, "shared", 0, b"after") == 0
        data = fetched(cluster, 3, "shared", 0)[1]
        assert all(value in data for value in (b"before", b"meanwhile", b"after"))


def test_replicas_in_a_failed_directory_give_up_leadership_and_rejoin_the_isr_after_a_restart(tmp_path: Path) -> None:
    homes = [tmp_path / f"broker-{NODE_ID}" / name for name in ("logs", "more")]
    with running_cluster(tmp_path, 3, *SETTINGS, f"log.dirs={homes[0]},{homes[1]}") as cluster:
        create(cluster, 3, "shared", on=[2, 3], configs={"flush.messages": "1"})
        create(cluster, 3, "other", on=[2, 3])
        assert produce(cluster, 2, "shared", 0, b"before") == 0
        directory = cluster.brokers[2].directory
        home, other = (directory / name for name in ("logs", "more"))
        if not (home / "shared-0").exists():
            home, other = other, home
        assert (other / "__cluster_metadata-0").exists()
        disk_rule(cluster, 2, f"disk=fsync error=EIO dir={home}")
        until(lambda: produce(cluster, 2, "shared", 0, b"in doubt") != ErrorCode.NONE)
        until(lambda: cluster.leaders(3, "shared") == [3] and in_sync(cluster, "shared") == [3])
        assert produce(cluster, 3, "shared", 0, b"meanwhile") == 0
        if (other / "other-0").exists():
            assert cluster.leaders(3, "other") == [2]

        disk_rule(cluster, 2, None)
        cluster.brokers[2].stop()
        cluster.brokers[2].start_again()
        until(lambda: in_sync(cluster, "shared") == [2, 3])
        assert b"meanwhile" in fetched(cluster, 3, "shared", 0)[1]
