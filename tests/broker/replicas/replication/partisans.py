"""Writers and readers that stay with one broker during partitions of the network between the brokers."""

from __future__ import annotations

import threading
import time

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.record import Record
from gregor.storage.clock import SystemClock
from tests.wire import Wire

PAUSE_S = 0.02
APPEND_LIMIT_MS = 300
MOST_BYTES = 200_000


class Partisan(threading.Thread):
    """A client that works with one broker until `stop`, and retries after a connection error."""

    def __init__(self, address: tuple[str, int], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.failure: BaseException | None = None
        self._address = address
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                with Wire(self._address, client_id=self.name) as wire:
                    while not self._stopping.is_set():
                        self._work(wire)
                        time.sleep(PAUSE_S)
            except OSError:
                time.sleep(PAUSE_S)
            except BaseException as failure:
                self.failure = failure
                return

    def _work(self, wire: Wire) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the client; raises its error."""
        self._stopping.set()
        self.join(30)
        if self.failure is not None:
            raise self.failure


class PartisanWriter(Partisan):
    """A client that writes single records, every second one with acks=all, while its broker acts as the leader."""

    def __init__(self, address: tuple[str, int], topic: str, name: str) -> None:
        super().__init__(address, name)
        self.acknowledged: dict[int, bytes] = {}
        """Offsets of what was acknowledged with acks=all, and the values."""
        self.taken: dict[bytes, int] = {}
        """Offsets of values that were acknowledged with acks=1, which may get lost."""
        self._topic = topic
        self._number = 0

    def _work(self, wire: Wire) -> None:
        self._number += 1
        acks = -1 if self._number % 2 else 1
        value = b"%s %d" % (self.name.encode(), self._number)
        batch = v2.build_batch([Record(0, SystemClock().now_ms(), None, value)])
        data = TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(acks=acks, timeout_ms=APPEND_LIMIT_MS, topic_data=[data])
        answer = wire.ask(ApiKey.PRODUCE, 7, request).responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.NONE and acks == 1:
            self.taken[value] = answer.base_offset
        elif answer.error_code == ErrorCode.NONE:
            assert self.acknowledged.setdefault(answer.base_offset, value) == value


class Sightings:
    """The records of one partition that consumers of all brokers have read; an offset has one value for ever."""

    def __init__(self) -> None:
        self.values: dict[int, bytes] = {}
        self._lock = threading.Lock()

    def see(self, offset: int, value: bytes, where: str) -> None:
        """Record the value at an offset. Raises AssertionError if another value was seen there before."""
        with self._lock:
            known = self.values.setdefault(offset, value)
        assert known == value, f"{where} serves {value!r} at offset {offset}, where {known!r} was"


class PartisanReader(Partisan):
    """A client that repeatedly reads a topic from the beginning at one broker, whether that broker leads or follows."""

    def __init__(self, address: tuple[str, int], topic: str, name: str, sightings: Sightings) -> None:
        super().__init__(address, name)
        self._topic = topic
        self._sightings = sightings
        self._offset = 0

    def _work(self, wire: Wire) -> None:
        wanted = FetchPartition(partition=0, fetch_offset=self._offset, partition_max_bytes=MOST_BYTES)
        request = FetchRequest(
            max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic=self._topic, partitions=[wanted])]
        )
        found = wire.ask(ApiKey.FETCH, 12, request).responses[0].partitions[0]
        records = [record for batch in iter_batches(found.records or b"") for record in iter_records(batch)]
        for record in records:
            self._sightings.see(record.offset, record.value or b"", self.name)
        self._offset = records[-1].offset + 1 if records else 0
