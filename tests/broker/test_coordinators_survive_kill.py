"""kill -9 between any two steps: acknowledged state is there, open transactions are open and can be ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from gregor.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.describe_groups import DescribeGroupsRequest
from gregor.protocol.messages.describe_transactions import DescribeTransactionsRequest
from gregor.protocol.messages.end_txn import EndTxnRequest
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.heartbeat import HeartbeatRequest
from gregor.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from gregor.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from gregor.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gregor.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from gregor.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from gregor.protocol.records import v2
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.record import Record
from tests.broker.loaded_coordinators import make_internal_topics, wait_until_loaded
from tests.broker_process import BrokerProcess, running_broker
from tests.wire import Wire

pytestmark = pytest.mark.slow

TOPIC, GROUP, TRANSACTION = "t", "g", "tx"
READ_COMMITTED = 1


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with running_broker(
        tmp_path, "group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=3", "num.partitions=2"
    ) as broker:
        ask(
            broker,
            ApiKey.CREATE_TOPICS,
            4,
            CreateTopicsRequest(
                topics=[CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)], timeout_ms=9000
            ),
        )
        make_internal_topics(broker)
        wait_until_loaded(broker, GROUP, TRANSACTION)
        yield broker


def ask(broker: BrokerProcess, key: ApiKey, version: int, request: Any) -> Any:
    with Wire(broker.address) as wire:
        return wire.ask(key, version, request)


def kill(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start_again()
    wait_until_loaded(broker, GROUP, TRANSACTION)


def committed_offset(broker: BrokerProcess) -> tuple[int, ErrorCode]:
    """Return the committed offset as a consumer of the group reads it."""
    request = OffsetFetchRequest(
        group_id=GROUP,
        topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])],
        require_stable=True,
    )
    (partition,) = ask(broker, ApiKey.OFFSET_FETCH, 7, request).topics[0].partitions
    return partition.committed_offset, ErrorCode(partition.error_code)


def visible_values(broker: BrokerProcess) -> list[bytes | None]:
    partition = FetchPartition(partition=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_bytes=1 << 20,
        isolation_level=READ_COMMITTED,
        topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
    )
    (answer,) = ask(broker, ApiKey.FETCH, 11, request).responses[0].partitions
    aborted = {transaction.producer_id for transaction in answer.aborted_transactions or []}
    return [
        record.value
        for batch in iter_batches(bytes(answer.records or b""))
        if not batch.is_control and batch.producer_id not in aborted
        for record in iter_records(batch)
    ]


def join(broker: BrokerProcess) -> Any:
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=600_000,
        rebalance_timeout_ms=5_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"meta")],
    )
    joined = ask(broker, ApiKey.JOIN_GROUP, 3, request)
    assert joined.error_code == ErrorCode.NONE
    synced = ask(
        broker,
        ApiKey.SYNC_GROUP,
        2,
        SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
        ),
    )
    assert synced.error_code == ErrorCode.NONE
    return joined


def commit(broker: BrokerProcess, offset: int, *, generation: int = -1, member: str = "") -> ErrorCode:
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[
            OffsetCommitRequestTopic(
                name=TOPIC, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
            )
        ],
    )
    return ErrorCode(ask(broker, ApiKey.OFFSET_COMMIT, 7, request).topics[0].partitions[0].error_code)


def test_members_and_offsets_are_there_after_a_kill(broker: BrokerProcess) -> None:
    joined = join(broker)
    assert commit(broker, 41, generation=joined.generation_id, member=joined.member_id) is ErrorCode.NONE
    kill(broker)
    assert committed_offset(broker) == (41, ErrorCode.NONE)
    beat = HeartbeatRequest(group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id)
    assert ask(broker, ApiKey.HEARTBEAT, 3, beat).error_code == ErrorCode.NONE
    assert commit(broker, 42, generation=joined.generation_id, member=joined.member_id) is ErrorCode.NONE
    (group,) = ask(broker, ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=[GROUP])).groups
    assert (group.group_state, group.members[0].member_assignment) == ("Stable", b"all")


def begin_transaction(broker: BrokerProcess) -> InitProducerIdResponse:
    """Return a transaction with one record and one committed offset, not ended."""
    producer = ask(
        broker,
        ApiKey.INIT_PRODUCER_ID,
        4,
        InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=600_000),
    )
    assert producer.error_code == ErrorCode.NONE
    added = ask(
        broker,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTION,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        ),
    )
    (result,) = added.results_by_topic_v3_and_below[0].results_by_partition
    assert result.partition_error_code == ErrorCode.NONE
    batch = v2.build_batch(
        [Record(0, 1_700_000_000_000, None, b"in the transaction")],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    produced = ask(
        broker,
        ApiKey.PRODUCE,
        9,
        ProduceRequest(
            transactional_id=TRANSACTION,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])],
        ),
    )
    assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    offsets_added = AddOffsetsToTxnRequest(transactional_id=TRANSACTION, group_id=GROUP, **identity)
    assert ask(broker, ApiKey.ADD_OFFSETS_TO_TXN, 3, offsets_added).error_code == ErrorCode.NONE
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=77)
    committed = ask(
        broker,
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        TxnOffsetCommitRequest(
            transactional_id=TRANSACTION,
            group_id=GROUP,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
            **identity,
        ),
    )
    assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert isinstance(producer, InitProducerIdResponse)
    return producer


def end_transaction(broker: BrokerProcess, producer: InitProducerIdResponse, *, commit: bool) -> ErrorCode:
    request = EndTxnRequest(
        transactional_id=TRANSACTION,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=commit,
    )
    return ErrorCode(ask(broker, ApiKey.END_TXN, 3, request).error_code)


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_open_transaction_can_be_ended_after_a_kill(broker: BrokerProcess, is_commit: bool) -> None:
    producer = begin_transaction(broker)
    kill(broker)
    assert committed_offset(broker) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert visible_values(broker) == []
    assert end_transaction(broker, producer, commit=is_commit) is ErrorCode.NONE
    assert committed_offset(broker) == (77 if is_commit else -1, ErrorCode.NONE)
    assert visible_values(broker) == ([b"in the transaction"] if is_commit else [])


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_ended_transaction_stays_ended_after_a_kill(broker: BrokerProcess, is_commit: bool) -> None:
    producer = begin_transaction(broker)
    assert end_transaction(broker, producer, commit=is_commit) is ErrorCode.NONE
    kill(broker)
    assert committed_offset(broker) == (77 if is_commit else -1, ErrorCode.NONE)
    assert visible_values(broker) == ([b"in the transaction"] if is_commit else [])
    (state,) = ask(
        broker, ApiKey.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(transactional_ids=[TRANSACTION])
    ).transaction_states
    assert state.transaction_state == ("CompleteCommit" if is_commit else "CompleteAbort")


def test_no_producer_id_is_given_out_twice(broker: BrokerProcess) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    before = {ask(broker, ApiKey.INIT_PRODUCER_ID, 4, request).producer_id for _ in range(5)}
    kill(broker)
    after = {ask(broker, ApiKey.INIT_PRODUCER_ID, 4, request).producer_id for _ in range(5)}
    assert len(before | after) == 10
