"""A controller that has lost metadata or has an older copy: brokers stop and delete nothing; and the way back."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.controller.cluster_calls import create, fetched, produce
from tests.broker_process import GREGOR, BrokerProcess, start_broker
from tests.cluster_of_processes import ClusterOfProcesses, running_cluster, until
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

SETTINGS = ("broker.session.timeout.ms=6000", "broker.heartbeat.interval.ms=100", "offsets.topic.num.partitions=1")
METADATA = "__cluster_metadata-0"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterOfProcesses]:
    with running_cluster(tmp_path, 3, *SETTINGS) as running:
        yield running


def logs(cluster: ClusterOfProcesses, node_id: int) -> Path:
    return cluster.brokers[node_id].directory / "logs"


def partition_directories(cluster: ClusterOfProcesses, node_id: int) -> set[str]:
    return {path.name for path in logs(cluster, node_id).iterdir() if path.is_dir()}


def metadata_recover(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *GREGOR, "metadata", "recover", *arguments], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ended_with_one_line(broker: BrokerProcess) -> str:
    """Return the one line that a broker logs when it stops by itself."""
    assert broker.process.wait(PATIENCE_S) == 1
    output = broker.output()
    assert "Traceback" not in output, output
    (line,) = (line for line in output.splitlines() if line.startswith("gregor: "))
    return line


def restore_older_copy(cluster: ClusterOfProcesses, tmp_path: Path) -> None:
    """Start the controller with a copy of its directory that was made before there were topics."""
    controller = cluster.brokers[1]
    controller.stop()
    copy = tmp_path / "copy"
    shutil.copytree(logs(cluster, 1), copy)
    controller.start_again()
    cluster.wait_until_all_see_all()
    create(cluster, 1, "later", on=[2, 3, 1])
    create(cluster, 1, "of-two", on=[2])
    assert produce(cluster, 2, "later", 0, b"precious") == 0
    assert produce(cluster, 2, "of-two", 0, b"precious too") == 0
    controller.kill()
    shutil.rmtree(logs(cluster, 1))
    shutil.copytree(copy, logs(cluster, 1))
    controller.respawn()


def fetched_from_leader(cluster: ClusterOfProcesses, topic: str, *, allowed: tuple[int, ...]) -> bytes:
    """Return the bytes that the leader of partition 0 serves; empty without a leader. No other broker may lead."""
    (leader,) = cluster.leaders(1, topic)
    assert leader in (-1, *allowed)
    return fetched(cluster, leader, topic, 0)[1] if leader != -1 else b""


def test_an_older_metadata_log_of_the_controller_stops_the_brokers_and_deletes_nothing(
    cluster: ClusterOfProcesses, tmp_path: Path
) -> None:
    restore_older_copy(cluster, tmp_path)
    for node_id in (2, 3):
        assert "gregor metadata recover" in ended_with_one_line(cluster.brokers[node_id])
        assert "later-0" in partition_directories(cluster, node_id)
    # The brokers do not start while the metadata is lost.
    cluster.brokers[2].respawn()
    assert cluster.brokers[2].process.wait(PATIENCE_S) == 1

    cluster.brokers[1].stop()
    sources = [word for node_id in (2, 3) for word in ("--from", str(logs(cluster, node_id)))]
    said = metadata_recover(*sources, "--to", str(logs(cluster, 1)))
    assert "-stray" in said
    for broker in cluster.brokers.values():
        broker.respawn()
    # The first broker with a replica that registers becomes the leader; the controller's own replica is empty.
    until(lambda: cluster.leaders(3, "of-two") == [2])
    until(lambda: b"precious" in fetched_from_leader(cluster, "later", allowed=(2, 3)))
    until(lambda: b"precious too" in fetched(cluster, 2, "of-two", 0)[1])
    until(lambda: sorted(cluster.metadata(1, "later").topics[0].partitions[0].isr_nodes) == [1, 2, 3])
    create(cluster, 3, "afterwards", replicas=3)


def test_a_controller_whose_metadata_log_is_lost_does_not_start_with_an_empty_log(cluster: ClusterOfProcesses) -> None:
    """Only `__cluster_metadata-0` is lost; the brokers continue, and follow again without a restart."""
    create(cluster, 1, "t", on=[1, 2, 3], configs={"min.insync.replicas": "2"})
    assert produce(cluster, 1, "t", 0, b"before") == 0
    controller = cluster.brokers[1]
    controller.kill()
    shutil.rmtree(logs(cluster, 1) / METADATA)
    for _ in range(2):
        controller.respawn()
        assert controller.process.wait(PATIENCE_S) == 1
    assert "Traceback" not in controller.output()
    assert "metadata log is lost" in controller.output()
    assert not (logs(cluster, 1) / METADATA).exists()
    assert cluster.brokers_seen_by(2)

    metadata_recover("--from", str(logs(cluster, 2)), "--to", str(logs(cluster, 1)))
    controller.start_again()
    cluster.wait_until_all_see_all()
    until(lambda: sorted(cluster.metadata(2, "t").topics[0].partitions[0].isr_nodes) == [1, 2, 3])
    until(lambda: b"before" in fetched(cluster, cluster.leaders(2, "t")[0], "t", 0)[1])
    until(lambda: produce(cluster, cluster.leaders(2, "t")[0], "t", 0, b"after") == 0)


def test_a_controller_with_a_new_disk_starts_with_the_metadata_log_of_a_broker(cluster: ClusterOfProcesses) -> None:
    create(cluster, 1, "t", on=[2, 3])
    assert produce(cluster, 2, "t", 0, b"before") == 0
    cluster.brokers[1].kill()
    shutil.rmtree(logs(cluster, 1))
    metadata_recover("--from", str(logs(cluster, 3)), "--to", str(logs(cluster, 1)), "--node-id", "1")
    cluster.brokers[1].start_again()
    cluster.wait_until_all_see_all()
    until(lambda: b"before" in fetched(cluster, 2, "t", 0)[1])
    create(cluster, 2, "afterwards", replicas=3)


def test_logs_of_partitions_missing_from_the_metadata_are_kept_as_stray_directories(
    cluster: ClusterOfProcesses, tmp_path: Path
) -> None:
    """A broker that has also lost its copy of the metadata cannot see that the controller's copy is older."""
    restore_older_copy(cluster, tmp_path)
    broker = cluster.brokers[2]
    ended_with_one_line(broker)
    shutil.rmtree(logs(cluster, 2) / METADATA)
    broker.start_again()
    until(lambda: "later-0 is kept as" in broker.output())
    (stray,) = (name for name in partition_directories(cluster, 2) if name.startswith("of-two-0."))
    assert stray.endswith("-stray")
    assert b"precious too" in (logs(cluster, 2) / stray / f"{0:020d}.log").read_bytes()


def test_a_broker_with_data_of_another_cluster_stops_and_names_both_cluster_ids(
    cluster: ClusterOfProcesses, tmp_path: Path
) -> None:
    stranger = start_broker(tmp_path / "stranger")
    stranger.stop()
    broker = cluster.brokers[2]
    broker.stop()
    shutil.rmtree(logs(cluster, 2))
    shutil.copytree(stranger.directory / "logs", logs(cluster, 2))
    meta = logs(cluster, 2) / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    broker.respawn()
    line = ended_with_one_line(broker)
    ids = [
        next(line.partition("=")[2] for line in path.read_text().splitlines() if line.startswith("cluster.id="))
        for path in (meta, logs(cluster, 1) / "meta.properties")
    ]
    assert all(cluster_id in line for cluster_id in ids)
