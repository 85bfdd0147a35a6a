"""A producer that survives failures of its leaders, in a thread of its own."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from tests.broker.torture_producer import TortureProducer
from tests.cluster_of_processes import CONTROLLER, ClusterOfProcesses

ANSWER_LIMIT_S = 4.0
"""A stopped broker does not answer: the producer then asks who leads."""


class Recovery(NamedTuple):
    """The times of a connection and of its first answer, by `time.monotonic`."""

    connected_at: float
    answered_at: float


class PersistentProducer(threading.Thread):
    """A `TortureProducer` that looks up its leader after each error, and writes until `finish`."""

    def __init__(self, cluster: ClusterOfProcesses, topic: str, *, is_idempotent: bool, side: int = CONTROLLER) -> None:
        """Take ``side``, the broker that is asked first for the leader."""
        super().__init__(name=topic, daemon=True)
        self.producer = TortureProducer(topic, is_idempotent=is_idempotent)
        self.topic = topic
        self.recoveries: list[Recovery] = []
        self.failure: BaseException | None = None
        self._cluster = cluster
        self._asked = sorted(cluster.brokers, key=lambda node_id: node_id != side)
        self._finishing = threading.Event()

    def start(self) -> None:
        """Begin to write; from then on the brokers may die."""
        if self.producer.is_idempotent:
            self.producer.connect(self._cluster.brokers[CONTROLLER].address)
            self.producer.close()
        super().start()

    def run(self) -> None:
        producer = self.producer
        connected_at: float | None = None
        try:
            while not self._finishing.is_set() or producer.under_way:
                try:
                    if not producer.is_connected:
                        connected_at = time.monotonic()
                        producer.connect(self._leader(), timeout_s=ANSWER_LIMIT_S)
                    if not self._finishing.is_set():
                        producer.fill()
                    producer.receive()
                    if connected_at is not None:
                        self.recoveries.append(Recovery(connected_at, time.monotonic()))
                        connected_at = None
                except OSError:
                    producer.close()
                    time.sleep(0.02)
        except BaseException as failure:
            self.failure = failure
        finally:
            producer.close()

    def _leader(self) -> tuple[str, int]:
        """Return the address of the partition's leader in the metadata of a running broker. Raises OSError."""
        for node_id in self._asked:
            try:
                leader = self._cluster.leaders(node_id, self.topic)[0]
            except (OSError, IndexError):
                continue
            if leader in self._cluster.brokers and self._cluster.brokers[node_id].process.poll() is None:
                return self._cluster.brokers[leader].address
        raise ConnectionError("nobody leads")

    def check(self) -> None:
        """Raise the error that ended the thread."""
        if self.failure is not None:
            raise self.failure

    def finish(self, limit_s: float) -> None:
        """Write no further records, and wait until all are acknowledged."""
        self._finishing.set()
        self.join(limit_s)
        self.check()
        assert not self.is_alive(), f"{self.topic} is not acknowledged {limit_s} s after the last trouble"
