"""kill -9 at each step of a transaction: a retry completes it, and its records are there exactly once.

The broker dies right after one append (`dying_broker.py`), before anything else happens and before the client has an
answer. In the torn variants the last bytes of that append are cut off as well, as after a failure of the machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from gregor.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.describe_transactions import DescribeTransactionsRequest
from gregor.protocol.messages.end_txn import EndTxnRequest
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.init_producer_id import InitProducerIdRequest
from gregor.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from gregor.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from gregor.protocol.records import v2
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.record import Record
from tests.broker.loaded_coordinators import NOT_YET, wait_until_loaded
from tests.broker_process import BrokerProcess, start_broker
from tests.wire import Wire

pytestmark = pytest.mark.slow

TOPIC, GROUP, TRANSACTION = "t", "g", "tx"
STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
COMMITTED_OFFSET = 77
DYING_BROKER = Path(__file__).with_name("dying_broker.py")
ONE_PARTITION_EACH = ("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")


class Step(NamedTuple):
    """A point at which the broker is killed: its last append, and the transaction's state after the restart."""

    topic: str
    partition: int
    number: int
    state: str | None
    state_if_torn: str | None


STEPS_V1 = {
    "the producer's epoch": Step(STATE, 0, 1, "Empty", None),
    "partitions added": Step(STATE, 0, 2, "Ongoing", "Empty"),
    "the first data": Step(TOPIC, 0, 1, "Ongoing", "Ongoing"),
    "the second data": Step(TOPIC, 1, 1, "Ongoing", "Ongoing"),
    "the group added": Step(STATE, 0, 3, "Ongoing", "Ongoing"),
    "pending offsets": Step(OFFSETS, 0, 1, "Ongoing", "Ongoing"),
    "Prepare": Step(STATE, 0, 4, "Complete", "Ongoing"),
    "the group's marker": Step(OFFSETS, 0, 2, "Complete", "Complete"),
    "the first marker": Step(TOPIC, 0, 2, "Complete", "Complete"),
    "the last marker": Step(TOPIC, 1, 2, "Complete", "Complete"),
    "Complete": Step(STATE, 0, 5, "Complete", "Complete"),
}
"""In the order in which they happen; markers are written in the order of topics."""

ENDING = ("Prepare", "the group's marker", "the first marker", "the last marker", "Complete")

STEPS_V2 = {
    "the producer's epoch": Step(STATE, 0, 1, "Empty", None),
    "the first partition joined": Step(STATE, 0, 2, "Ongoing", "Empty"),
    "the first data": Step(TOPIC, 0, 1, "Ongoing", "Ongoing"),
    "the second partition joined": Step(STATE, 0, 3, "Ongoing", "Ongoing"),
    "the second data": Step(TOPIC, 1, 1, "Ongoing", "Ongoing"),
    "the group joined": Step(STATE, 0, 4, "Ongoing", "Ongoing"),
    "pending offsets": Step(OFFSETS, 0, 1, "Ongoing", "Ongoing"),
    "Prepare": Step(STATE, 0, 5, "Complete", "Ongoing"),
    "the group's marker": Step(OFFSETS, 0, 2, "Complete", "Complete"),
    "the first marker": Step(TOPIC, 0, 2, "Complete", "Complete"),
    "the last marker": Step(TOPIC, 1, 2, "Complete", "Complete"),
    "Complete": Step(STATE, 0, 6, "Complete", "Complete"),
}
"""With transactions V2 (KIP-890) writes join by themselves."""


@dataclass
class Client:
    """A transactional producer that repeats a request after a broken connection, once the broker is back."""

    broker: BrokerProcess
    is_v2: bool
    came_back: Callable[[], None]
    producer_id: int = -1
    epoch: int = -1
    deaths: int = field(default=0, init=False)

    def ask(self, key: ApiKey, version: int, request: Any) -> Any:
        """Return the answer, perhaps of the second broker."""
        try:
            with Wire(self.broker.address) as wire:
                return wire.ask(key, version, request)
        except ConnectionError:
            self.broker.process.wait()
            self.deaths += 1
            self.came_back()
            with Wire(self.broker.address) as wire:
                return wire.ask(key, version, request)

    @property
    def identity(self) -> dict[str, Any]:
        """Return the fields of requests that identify the producer."""
        return {"producer_id": self.producer_id, "producer_epoch": self.epoch}

    def set_up(self) -> None:
        """Create the topic, and enable transactions V2 if the test needs it."""
        if self.is_v2:
            update = FeatureUpdateKey(feature="transaction.version", max_version_level=2)
            self.ask(ApiKey.UPDATE_FEATURES, 1, UpdateFeaturesRequest(feature_updates=[update]))
        topics = [CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)]
        self.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=topics, timeout_ms=9000))

    def begin_session(self) -> None:
        """Send InitProducerId."""
        request = InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=600_000)
        answer = self.ask(ApiKey.INIT_PRODUCER_ID, 4, request)
        assert answer.error_code == ErrorCode.NONE
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def add_partitions(self) -> None:
        """Send AddPartitionsToTxn."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTION,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0, 1])],
        )
        (topic,) = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request).results_by_topic_v3_and_below
        assert {result.partition_error_code for result in topic.results_by_partition} == {ErrorCode.NONE}

    def produce(self, partition: int, value: bytes) -> None:
        """Produce one record, the first of its epoch."""
        batch = v2.build_batch(
            [Record(0, time.time_ns() // 1_000_000, None, value)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            transactional_id=TRANSACTION,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        (topic,) = self.ask(ApiKey.PRODUCE, 12 if self.is_v2 else 9, request).responses
        assert topic.partition_responses[0].error_code == ErrorCode.NONE

    def add_group(self) -> None:
        """Send AddOffsetsToTxn."""
        request = AddOffsetsToTxnRequest(transactional_id=TRANSACTION, group_id=GROUP, **self.identity)
        assert self.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, request).error_code == ErrorCode.NONE

    def commit_offsets(self) -> None:
        """Send TxnOffsetCommit until the group is loaded."""
        position = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=COMMITTED_OFFSET)
        request = TxnOffsetCommitRequest(
            transactional_id=TRANSACTION,
            group_id=GROUP,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[position])],
            **self.identity,
        )
        code: int = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        while code in NOT_YET:
            answer = self.ask(ApiKey.TXN_OFFSET_COMMIT, 5 if self.is_v2 else 3, request)
            code = answer.topics[0].partitions[0].error_code
        assert code == ErrorCode.NONE

    def end(self, *, commit: bool) -> None:
        """Send EndTxn."""
        request = EndTxnRequest(transactional_id=TRANSACTION, committed=commit, **self.identity)
        answer = self.ask(ApiKey.END_TXN, 5 if self.is_v2 else 3, request)
        assert answer.error_code == ErrorCode.NONE
        if self.is_v2:
            assert (answer.producer_id, answer.producer_epoch) == (self.producer_id, self.epoch + 1)
            self.epoch = answer.producer_epoch

    def transaction(self, *, commit: bool) -> None:
        """Run a whole transaction."""
        if not self.is_v2:
            self.add_partitions()
        self.produce(0, b"one")
        self.produce(1, b"two")
        if not self.is_v2:
            self.add_group()
        self.commit_offsets()
        self.end(commit=commit)

    def state(self) -> str | None:
        """Return the transaction's state; None if the broker does not know the id."""
        request = DescribeTransactionsRequest(transactional_ids=[TRANSACTION])
        (described,) = self.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
        return None if described.error_code else str(described.transaction_state)

    def visible(self, partition: int) -> list[bytes | None]:
        """Return the records that a read_committed consumer of a partition reads."""
        wanted = FetchPartition(partition=partition, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic=TOPIC, partitions=[wanted])]
        request = FetchRequest(max_bytes=1 << 20, isolation_level=1, topics=topics)
        (answer,) = self.ask(ApiKey.FETCH, 11, request).responses[0].partitions
        assert answer.last_stable_offset == answer.high_watermark
        aborted = {transaction.producer_id for transaction in answer.aborted_transactions or []}
        return [
            record.value
            for batch in iter_batches(bytes(answer.records or b""))
            if not batch.is_control and batch.producer_id not in aborted
            for record in iter_records(batch)
        ]

    def committed_offset(self) -> int:
        """Return the group's offset as a consumer would read it; -1 for none."""
        topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
        request = OffsetFetchRequest(group_id=GROUP, topics=topics, require_stable=True)
        answer = self.ask(ApiKey.OFFSET_FETCH, 7, request)
        while answer.error_code in NOT_YET:
            answer = self.ask(ApiKey.OFFSET_FETCH, 7, request)
        (partition,) = answer.topics[0].partitions
        assert partition.error_code == ErrorCode.NONE
        return int(partition.committed_offset)


def cut_last_bytes(broker: BrokerProcess, step: Step) -> None:
    """Cut the last bytes of the append after which the broker died."""
    segment = broker.directory / "logs" / f"{step.topic}-{step.partition}" / f"{0:020d}.log"
    os.truncate(segment, segment.stat().st_size - 7)


def survive(directory: Path, step: Step, *, is_v2: bool, torn: bool, commit: bool) -> None:
    """Run a transaction during which the broker is killed, and check its result."""
    program = (str(DYING_BROKER), step.topic, str(step.partition), str(step.number))
    broker = start_broker(directory, *ONE_PARTITION_EACH, program=program)

    def come_back() -> None:
        if torn:
            cut_last_bytes(broker, step)
        broker.start_again()
        wait_until_loaded(broker, GROUP, TRANSACTION)
        found, expected = client.state(), step.state_if_torn if torn else step.state
        assert found == (f"Complete{'Commit' if commit else 'Abort'}" if expected == "Complete" else expected)

    client = Client(broker, is_v2, come_back)
    try:
        client.set_up()
        client.begin_session()
        client.transaction(commit=commit)
        assert client.deaths == 1
        expected = [[b"one"], [b"two"], COMMITTED_OFFSET] if commit else [[], [], -1]
        assert [client.visible(0), client.visible(1), client.committed_offset()] == expected
        if is_v2:
            client.transaction(commit=True)
            assert client.visible(0)[-1:] == [b"one"]
    finally:
        broker.kill()


@pytest.mark.parametrize("name", STEPS_V1)
def test_a_commit_survives_a_kill_after_each_step(tmp_path: Path, name: str) -> None:
    survive(tmp_path, STEPS_V1[name], is_v2=False, torn=False, commit=True)


@pytest.mark.parametrize("name", ["the producer's epoch", "partitions added", "the first data", *ENDING])
def test_a_commit_survives_a_torn_append(tmp_path: Path, name: str) -> None:
    survive(tmp_path, STEPS_V1[name], is_v2=False, torn=True, commit=True)


@pytest.mark.parametrize("name", ENDING)
def test_an_abort_survives_a_kill_after_each_step_of_its_end(tmp_path: Path, name: str) -> None:
    survive(tmp_path, STEPS_V1[name], is_v2=False, torn=False, commit=False)


@pytest.mark.parametrize("name", STEPS_V2)
def test_a_commit_of_transactions_v2_survives_a_kill_after_each_step(tmp_path: Path, name: str) -> None:
    survive(tmp_path, STEPS_V2[name], is_v2=True, torn=False, commit=True)
