"""``python -m bench.failover``: the pause of producers when a broker is killed or stopped, beside Apache Kafka 3.9.1.

    python -m bench.failover --events 10
    python -m bench.failover --events 3 --kafka --only "kill -9, 9000"

Three brokers, a topic with three replicas, and a producer (acks=all, idempotent) that sends one record after the other
to each partition. A broker that leads some of them, never the controller, is killed or stopped. The result is the
longest time between two acknowledgements on any partition that this broker led. Then the broker is started again, and
leads its partitions again, before the next event.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import trio

from bench.bench_cluster import BenchCluster, gregor_cluster, kafka_cluster, until
from bench.side_by_side import SHARED
from gregor.client import Producer
from gregor.client.admin import Admin, ElectionType, NewTopic

TOPIC = "bench-failover"
BROKERS, PARTITIONS = 3, 6
DEFAULT_SESSION_MS = 9000
PATIENT_MS = 20
"""The producer's back-off before a retry: short, so that the brokers' share of the pause is visible."""


@dataclass(frozen=True)
class Scene:
    """The way in which a broker ends, and the controller's time limit for a silent broker
    (`broker.session.timeout.ms`).
    """

    how: signal.Signals
    session_ms: int

    @property
    def name(self) -> str:
        what = "kill -9" if self.how is signal.SIGKILL else "SIGTERM"
        return f"{what}, {self.session_ms}"

    @property
    def settings(self) -> list[str]:
        """The broker settings: the heartbeat interval has its default proportion to the session, two of nine
        seconds.
        """
        heartbeat_ms = self.session_ms * 2 // 9
        return [f"broker.session.timeout.ms={self.session_ms}", f"broker.heartbeat.interval.ms={heartbeat_ms}"]


SCENES = (
    Scene(signal.SIGKILL, DEFAULT_SESSION_MS),
    Scene(signal.SIGKILL, 1500),
    Scene(signal.SIGTERM, DEFAULT_SESSION_MS),
)


class Line:
    """The acknowledgements of one partition's records, sent one after the other."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.sent_at = 0.0
        """The time at which the last acknowledged record was sent."""
        self._acknowledged_at = 0.0
        self.longest_pause_s = 0.0

    def begin(self) -> None:
        """Reset the pauses."""
        self.longest_pause_s = 0.0

    async def run(self, producer: Producer) -> None:
        """Send records until cancelled."""
        while True:
            sent_at = trio.current_time()
            delivery = await producer.send(TOPIC, b"x" * 100, partition=self.partition)
            await delivery
            now = trio.current_time()
            if self._acknowledged_at:
                self.longest_pause_s = max(self.longest_pause_s, now - self._acknowledged_at)
            self.sent_at, self._acknowledged_at = sent_at, now
            # A few hundred records per second on each partition are enough.
            await trio.sleep(0.002)


class Failovers:
    """A cluster whose brokers are stopped and started again."""

    def __init__(self, cluster: BenchCluster, how: signal.Signals) -> None:
        self._cluster = cluster
        self._how = how
        self._lines = [Line(partition) for partition in range(PARTITIONS)]

    async def run(self, events: int) -> list[float]:
        """Return the longest pause of each event, in seconds."""
        cluster = self._cluster
        patience: dict[str, Any] = {"retry_backoff_ms": PATIENT_MS, "retry_backoff_max_ms": PATIENT_MS}
        patience |= {"reconnect_backoff_ms": PATIENT_MS, "reconnect_backoff_max_ms": PATIENT_MS}
        async with Admin(cluster.bootstrap, **patience) as admin, Producer(cluster.bootstrap, **patience) as producer:
            await until(cluster.has_all_brokers, admin)
            spread = [[(p + i) % BROKERS + 1 for i in range(BROKERS)] for p in range(PARTITIONS)]
            await admin.create_topics([NewTopic(TOPIC, replica_assignments=spread)])
            async with trio.open_nursery() as nursery:
                for line in self._lines:
                    nursery.start_soon(line.run, producer)
                pauses = [await self._event(admin, 1 + number % (BROKERS - 1)) for number in range(events)]
                nursery.cancel_scope.cancel()
        return pauses

    async def _event(self, admin: Admin, index: int) -> float:
        node, node_id = self._cluster.nodes[index], index + 1
        await until(self._leads_its_own, admin)
        led = [line for line in self._lines if line.partition % BROKERS + 1 == node_id]
        await trio.sleep(0.5)
        for line in led:
            line.begin()
        await trio.to_thread.run_sync(node.stop, self._how)
        gone_at = trio.current_time()
        await until(self._goes_on, led, gone_at)
        pause_s = max(line.longest_pause_s for line in led)
        print(f"{self._cluster.name}: broker {node_id} gone, {pause_s * 1000:.0f} ms", file=sys.stderr)
        await trio.to_thread.run_sync(node.start)
        return pause_s

    async def _leads_its_own(self, admin: Admin) -> bool:
        """Return whether every partition is led by its preferred leader; elect the preferred leaders if not."""
        if not await self._cluster.has_all_brokers(admin) or not await self._cluster.is_in_sync(admin, TOPIC, BROKERS):
            return False
        (topic,) = await admin.describe_topics([TOPIC])
        if all(partition.leader == partition.replicas[0] for partition in topic.partitions):
            return True
        await admin.elect_leaders(ElectionType.PREFERRED)
        return False

    @staticmethod
    async def _goes_on(lines: list[Line], since: float) -> bool:
        return all(line.sent_at > since for line in lines)


def main() -> int:
    """Run all scenes and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.failover", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=10, help="brokers that go, in each scene (default: %(default)s)")
    parser.add_argument("--only", default="", help="only the scenes whose name has this in it")
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka instead of Gregor (needs ../shared)")
    options = parser.parse_args()
    if options.kafka and not (SHARED / "peer").is_dir():
        print("skipped: Apache Kafka 3.9.1 is in ../shared, which is not here", file=sys.stderr)
        return 0
    print("| brokers | how they go, session timeout ms | events | longest pause ms: median | least | most |")
    print("| --- | --- | --- | --- | --- | --- |")
    for scene in SCENES:
        if options.only not in scene.name:
            continue
        with ExitStack() as running:
            scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="gregor-bench-")))
            if options.kafka:
                cluster = running.enter_context(kafka_cluster(BROKERS, *scene.settings))
            else:
                cluster = running.enter_context(gregor_cluster(BROKERS, scratch, *scene.settings))
            pauses = [1000 * pause for pause in trio.run(Failovers(cluster, scene.how).run, options.events)]
        figures = f"{median(pauses):,.0f} | {min(pauses):,.0f} | {max(pauses):,.0f}"
        print(f"| {cluster.name} | {scene.name} | {len(pauses)} | {figures} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
