"""Failures of brokers in the fail-over torture, and the time that producers are without a leader."""

from __future__ import annotations

import random
import signal
import statistics
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.broker.replicas.replication.persistent_producer import PersistentProducer
from tests.broker_process import wait_until_it_answers
from tests.cluster_of_processes import CONTROLLER, ClusterOfProcesses

TROUBLES = ("kill", "kill", "kill the leader", "kill the leader", "stop", "stop the leader", "kill two")


class Kill(NamedTuple):
    """A kill of some brokers at one moment, with the watched partitions that they led."""

    at: float
    """`time.monotonic()` when the last of them was dead."""
    victims: tuple[int, ...]
    topics: tuple[str, ...]


class Troublemaker:
    """A task that kills or stops brokers, one failure after the other."""

    def __init__(
        self,
        cluster: ClusterOfProcesses,
        dice: random.Random,
        producers: Iterable[PersistentProducer],
        targets: Iterable[tuple[str, int]],
    ) -> None:
        """Take ``targets``, the partitions whose leaders fail more often than other brokers."""
        self._cluster = cluster
        self._dice = dice
        self._producers = list(producers)
        self._targets = list(targets)
        self._kills: list[Kill] = []

    def make_trouble(self, number: int) -> None:
        """Kill or stop one or two brokers, wait, let them recover, and wait again."""
        dice, brokers = self._dice, self._cluster.brokers
        trouble = dice.choice(TROUBLES)
        victims = [dice.choice(list(brokers))]
        of = ""
        if trouble.endswith("the leader"):
            topic, partition = dice.choice(self._targets)
            of = f" of {topic}-{partition}"
            leader = self._leader_of(topic, partition)
            victims = [leader] if leader in brokers else victims
        elif trouble == "kill two":
            victims = dice.sample(list(brokers), 2)
        print(f"{number}: {trouble}{of}: {victims}", flush=True)
        if trouble.startswith("stop"):
            with self._stopped(victims[0]):
                time.sleep(dice.choice([0.1, 0.5, 2.5, 4.5]))
        else:
            self._kill(victims)
        time.sleep(dice.uniform(0.0, 2.5))

    def _kill(self, victims: list[int]) -> None:
        brokers = self._cluster.brokers
        watched = [producer.topic for producer in self._producers]
        led = [topic for topic in watched if self._leader_of(topic) in victims]
        for victim in victims:
            brokers[victim].kill()
        self._kills.append(Kill(time.monotonic(), tuple(victims), tuple(led)))
        time.sleep(self._dice.choice([0.0, 0.3, 2.5]))
        for victim in victims:
            brokers[victim].respawn()
        for victim in victims:
            wait_until_it_answers(brokers[victim])

    def _leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the leader in the metadata of the controller's broker; -1 without a leader or topic."""
        try:
            return self._cluster.leaders(CONTROLLER, topic)[partition]
        except (OSError, IndexError):
            return -1

    @contextmanager
    def _stopped(self, node_id: int) -> Iterator[None]:
        """Stop a broker during the context with SIGSTOP, and continue it afterwards."""
        process = self._cluster.brokers[node_id].process
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def failover_times(self, *, of_controller: bool) -> list[float]:
        """Return the seconds from each kill to the next answer, for each watched partition that a killed broker led.

        Those with the controller among the victims, which decides who leads, are returned separately.
        """
        recoveries = {producer.topic: producer.recoveries for producer in self._producers}
        times = (
            # The pause is unknown if another broker led when the broker was killed.
            next((first.answered_at - kill.at for first in recoveries[topic] if first.connected_at > kill.at), None)
            for kill in self._kills
            if (CONTROLLER in kill.victims) is of_controller
            for topic in kill.topics
        )
        return [time_s for time_s in times if time_s is not None]

    def failover_summary(self) -> str:
        """Return the times in words."""
        parts = []
        for name, of_controller in (("others live", False), ("with the controller", True)):
            times = self.failover_times(of_controller=of_controller)
            if times:
                parts.append(
                    f"{name}: {len(times)} times, median {statistics.median(times):.2f} s, longest {max(times):.2f} s"
                )
        return "; ".join(parts)
