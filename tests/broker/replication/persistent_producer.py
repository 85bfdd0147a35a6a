"""A producer that lives through whatever becomes of its leaders, in a thread of its own."""

from __future__ import annotations

import threading
import time

from tests.broker.torture_producer import TortureProducer
from tests.cluster_of_processes import CONTROLLER, ClusterOfProcesses

ANSWER_LIMIT_S = 4.0
"""A stopped broker does not answer: the producer then asks who leads."""


class PersistentProducer(threading.Thread):
    """A `TortureProducer` that finds its leader again and again, and writes until told to finish."""

    def __init__(self, cluster: ClusterOfProcesses, topic: str, *, is_idempotent: bool, side: int = CONTROLLER) -> None:
        """Who leads, broker ``side`` is asked before all others."""
        super().__init__(name=topic, daemon=True)
        self.producer = TortureProducer(topic, is_idempotent=is_idempotent)
        self.longest_silence_s = 0.0
        self.failure: BaseException | None = None
        self._cluster = cluster
        self._asked = sorted(cluster.brokers, key=lambda node_id: node_id != side)
        self._finishing = threading.Event()

    def run(self) -> None:
        producer = self.producer
        answered_at = time.monotonic()
        try:
            if producer.is_idempotent:
                producer.connect(self._cluster.brokers[CONTROLLER].address)
                producer.close()
            while not self._finishing.is_set() or producer.under_way:
                try:
                    if not producer.is_connected:
                        producer.connect(self._leader(), timeout_s=ANSWER_LIMIT_S)
                    if not self._finishing.is_set():
                        producer.fill()
                    producer.receive()
                    now = time.monotonic()
                    self.longest_silence_s = max(self.longest_silence_s, now - answered_at)
                    answered_at = now
                except OSError:
                    producer.close()
                    time.sleep(0.02)
        except BaseException as failure:
            self.failure = failure
        finally:
            producer.close()

    def _leader(self) -> tuple[str, int]:
        """Where the partition is led, as some broker sees it. Raises OSError."""
        for node_id in self._asked:
            try:
                leader = self._cluster.leaders(node_id, self.producer.topic)[0]
            except (OSError, IndexError):
                continue
            if leader in self._cluster.brokers and self._cluster.brokers[node_id].process.poll() is None:
                return self._cluster.brokers[leader].address
        raise ConnectionError("nobody leads")

    def finish(self, limit_s: float) -> None:
        """Write no more, and wait until all is acknowledged."""
        self._finishing.set()
        self.join(limit_s)
        if self.failure is not None:
            raise self.failure
        assert not self.is_alive(), f"{self.producer.topic} is not acknowledged {limit_s} s after the last trouble"
