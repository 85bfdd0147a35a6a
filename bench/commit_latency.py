"""``python -m bench.commit_latency``: the latency of commits, beside Apache Kafka 3.9.1.

- OffsetCommit: one position, from the request to its answer, one after the other.
- EndTxn: from the request to its answer.
- visible: from EndTxn to the record at a `read_committed` consumer, which waits for the record in a fetch.
- whole transaction: from its first request to the same; AddPartitionsToTxn, Produce and EndTxn, each after the other's
  answer. Where the last transaction is not ended yet, its producer asks again after a millisecond.

Rounds take turns between the brokers. Of each round the median and the 99th percentile are kept; the table has the
medians over all rounds, lowest and highest in brackets.
"""

from __future__ import annotations

import argparse
import select
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.broker_pair import BenchBroker, broker_pair
from gregor.protocol.apis import ApiKey
from gregor.protocol.codec import decode
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.end_txn import EndTxnRequest
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from gregor.protocol.messages.find_coordinator import FindCoordinatorRequest
from gregor.protocol.messages.init_producer_id import InitProducerIdRequest
from gregor.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.batches import iter_batches
from gregor.protocol.records.record import Record
from tests.wire import Wire, produce_once_there_is_a_leader

TOPIC = "committed"
FETCH_VERSION = 11
READ_COMMITTED = 1
RETRY_S = 0.001
NOT_YET = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class Load:
    """A load of one broker: one producer, one consumer and one group."""

    def __init__(self, broker: BenchBroker) -> None:
        self._producing = Wire(broker.address, timeout=60)
        self._consuming = Wire(broker.address, timeout=60)
        self._transactional_id = f"tx-{uuid4().hex[:8]}"
        self._group_id = f"group-{uuid4().hex[:8]}"
        self._sequence = 0
        self._next_offset = 0
        ask = self._producing.ask
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        produce_once_there_is_a_leader(self._producing, self._produce_request(b""))
        for kind, key in ((0, self._group_id), (1, self._transactional_id)):
            self._until_there(ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest(key=key, key_type=kind))
        request = InitProducerIdRequest(transactional_id=self._transactional_id, transaction_timeout_ms=60_000)
        producer = self._until_there(ApiKey.INIT_PRODUCER_ID, 4, request)
        self._producer_id, self._epoch = producer.producer_id, producer.producer_epoch

    def commit_offsets(self, count: int) -> list[float]:
        """Return the seconds of each OffsetCommit."""
        return [self._commit_offset(number) for number in range(count)]

    def _commit_offset(self, offset: int) -> float:
        position = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[position])
        request = OffsetCommitRequest(group_id=self._group_id, topics=[topic])
        begin = time.perf_counter()
        code: int = ErrorCode.NOT_COORDINATOR
        while code in NOT_YET:
            answer = self._producing.ask(ApiKey.OFFSET_COMMIT, 8, request)
            code = answer.topics[0].partitions[0].error_code
        if code:
            raise RuntimeError(f"OffsetCommit: {ErrorCode(code).name}")
        return time.perf_counter() - begin

    def transact(self, count: int) -> dict[str, list[float]]:
        """Return the seconds of each transaction's steps."""
        figures: defaultdict[str, list[float]] = defaultdict(list)
        for _ in range(count):
            self._fetch()
            begin = time.perf_counter()
            self._add_partition()
            self._produce()
            asked = time.perf_counter()
            answered, visible = self._end()
            figures["EndTxn"].append(answered - asked)
            figures["visible"].append(visible - asked)
            figures["whole transaction"].append(visible - begin)
        return dict(figures)

    def _until_there(self, key: ApiKey, version: int, request: FindCoordinatorRequest | InitProducerIdRequest) -> Any:
        while True:
            answer = self._producing.ask(key, version, request)
            if answer.error_code not in NOT_YET:
                if answer.error_code:
                    raise RuntimeError(f"{key.name}: {ErrorCode(answer.error_code).name}")
                return answer
            time.sleep(0.05)

    def _add_partition(self) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        )
        while True:
            (topic,) = self._producing.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request).results_by_topic_v3_and_below
            code = topic.results_by_partition[0].partition_error_code
            if not code:
                return
            if code not in NOT_YET:
                raise RuntimeError(f"AddPartitionsToTxn: {ErrorCode(code).name}")
            time.sleep(RETRY_S)

    def _produce(self) -> None:
        batch = v2.build_batch(
            [Record(0, time.time_ns() // 1_000_000, None, b"x" * 100)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
            is_transactional=True,
        )
        self._sequence += 1
        (topic,) = self._producing.ask(ApiKey.PRODUCE, 9, self._produce_request(batch)).responses
        code = topic.partition_responses[0].error_code
        if code:
            raise RuntimeError(f"Produce: {ErrorCode(code).name}")

    def _produce_request(self, batch: bytes) -> ProduceRequest:
        data = PartitionProduceData(index=0, records=batch)
        return ProduceRequest(
            transactional_id=self._transactional_id if batch else None,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )

    def _end(self) -> tuple[float, float]:
        """Return the time of EndTxn's answer, and the time at which the consumer had the record."""
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=True,
        )
        self._producing.send(ApiKey.END_TXN, 3, request)
        answered = visible = 0.0
        while not (answered and visible):
            ready, _, _ = select.select([self._producing.socket, self._consuming.socket], [], [], 30)
            now = time.perf_counter()
            if self._producing.socket in ready:
                self._producing.receive_frame()
                answered = now
            if self._consuming.socket in ready:
                if self._has_fetched():
                    visible = now
                else:
                    self._fetch()
        return answered, visible

    def _fetch(self) -> None:
        """Wait for the next record, on the consumer's connection."""
        wanted = FetchPartition(partition=0, fetch_offset=self._next_offset, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic=TOPIC, partitions=[wanted])]
        request = FetchRequest(
            max_wait_ms=20_000, min_bytes=1, max_bytes=1 << 20, isolation_level=READ_COMMITTED, topics=topics
        )
        self._consuming.send(ApiKey.FETCH, FETCH_VERSION, request)

    def _has_fetched(self) -> bool:
        correlation_id_bytes = 4
        frame = self._consuming.receive_frame()
        (answer,) = decode(FetchResponse, frame[correlation_id_bytes:], FETCH_VERSION).responses[0].partitions
        records = answer.records
        assert isinstance(records, bytes | memoryview)
        batches = list(iter_batches(records))
        if batches:
            self._next_offset = batches[-1].last_offset + 1
        return any(not batch.is_control for batch in batches)


def main() -> int:
    """Run all rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commits", type=int, default=2_000)
    parser.add_argument("--transactions", type=int, default=500)
    arguments = parser.parse_args()
    results: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory(prefix="gregor-bench-") as scratch,
        broker_pair(Path(scratch)) as brokers,
    ):
        for broker in brokers:
            broker.start()
        loads = {broker.name: Load(broker) for broker in brokers}
        for number in range(-1, arguments.rounds):
            for name, load in loads.items():
                figures = {"OffsetCommit": load.commit_offsets(arguments.commits)}
                figures |= load.transact(arguments.transactions)
                # The first round warms the brokers up.
                if number < 0:
                    continue
                for step, seconds in figures.items():
                    results[step, "p50", name].append(statistics.median(seconds) * 1e3)
                    results[step, "p99", name].append(statistics.quantiles(seconds, n=100)[-1] * 1e3)
    print("| step | figure | broker | ms |\n|" + " --- |" * 4)
    for (step, figure, name), values in results.items():
        print(f"| {step} | {figure} | {name} | {statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f}) |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
