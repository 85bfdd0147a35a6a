"""Transactions of a producer (KIP-98): its identity, the partitions and groups that take part, commit and abort."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from itertools import groupby
from typing import TypeVar

import trio

from ...protocol.apis import api_key_of
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ...protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ...protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ...protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ...protocol.schema import Message
from ...protocol.topic_partition import AnyTopicPartition
from ..config import ProducerConfig
from ..errors import COORDINATOR_MOVED_CODES, AbandonedError, ClientError, copied_error
from ..wire.cluster import Cluster, CoordinatorType
from ..wire.group_offsets import CommittedOffset, GroupMetadata
from ..wire.retry import retry

Response = TypeVar("Response", bound=Message)


class TransactionState(Enum):
    """The state of a transactional producer.

    UNINITIALIZED -> READY -> IN_TRANSACTION -> ENDING -> READY; IN_TRANSACTION -> MUST_ABORT -> ENDING; any ->
    FENCED. A producer that does not know the outcome of its last transaction is FENCED as well: only a new producer
    with the same transactional id can continue.
    """

    UNINITIALIZED = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    MUST_ABORT = auto()
    ENDING = auto()
    FENCED = auto()


FIRST_VERSION_WITH_MEMBERSHIP = 3
"""The first version of TxnOffsetCommit in which the coordinator refuses offsets of a former group member (KIP-447)."""
FIRST_VERSION_WITH_IDENTITY = 3
"""The first version of InitProducerId that carries the producer id and epoch to renew (KIP-360)."""
FATAL_CODES = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""Error codes after which the producer can only be closed."""


class TransactionManager:
    """The transactional state of one producer. The sender asks it which batches may be sent; the producer drives it."""

    def __init__(self, cluster: Cluster, config: ProducerConfig) -> None:
        assert config.transactional_id is not None
        self.state = TransactionState.UNINITIALIZED
        self.producer_id = -1
        self.producer_epoch = -1
        self.error: Exception | None = None
        self._transactional_id = config.transactional_id
        self._cluster = cluster
        self._config = config
        self._added: set[AnyTopicPartition] = set()
        self._new: set[AnyTopicPartition] = set()
        self._has_offsets = False
        self._adding = trio.Lock()
        """Held while partitions are added, and while a transaction ends: see `end`."""

    # --- the producer's side ---

    async def initialize(self) -> None:
        """Get (or renew) the producer id and epoch.

        This ends an open transaction of an earlier producer with this transactional id.

        A renewal names the identity held until now, so that the coordinator refuses it once another producer has taken
        the transactional id over (KIP-360). Raises BrokerError or DeadlineExceededError (`max.block.ms`).
        """
        self.state = TransactionState.UNINITIALIZED
        answer = await self._ask(
            self._initialization,
            InitProducerIdResponse,
            "InitProducerId",
            lambda answer: [answer.error_code],
        )
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        self.state = TransactionState.READY

    def _initialization(self, version: int) -> InitProducerIdRequest:
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id, transaction_timeout_ms=self._config.transaction_timeout_ms
        )
        if version >= FIRST_VERSION_WITH_IDENTITY:
            request.producer_id, request.producer_epoch = self.producer_id, self.producer_epoch
        return request

    def begin(self) -> None:
        """Open a transaction.

        Raises the error that has fenced the producer, or ClientError if a transaction is open already.
        """
        if self.state is TransactionState.FENCED and self.error is not None:
            # A copy: an exception that is raised again and again keeps the frames of all its callers.
            raise copied_error(self.error)
        if self.state is not TransactionState.READY:
            raise ClientError(f"a transaction cannot begin while the producer is {self.state.name}")
        self.error = None
        self.state = TransactionState.IN_TRANSACTION

    def check_open(self) -> None:
        """Raise unless records may be sent now."""
        if self.state in (TransactionState.MUST_ABORT, TransactionState.FENCED) and self.error is not None:
            raise copied_error(self.error)
        if self.state is not TransactionState.IN_TRANSACTION:
            raise ClientError("a producer with a transactional_id sends inside `async with producer.transaction()`")

    def note_partition(self, topic: str, partition: int) -> None:
        """Note that a record is produced to the partition in the open transaction."""
        place = (topic, partition)
        if place not in self._added:
            self._new.add(place)

    async def send_offsets(
        self, group: str | GroupMetadata, offsets: Mapping[AnyTopicPartition, int | CommittedOffset]
    ) -> None:
        """Commit a group's offsets (the next to read), with their metadata texts if any, in the transaction.

        `group`: `Consumer.group_metadata()`, so that offsets of partitions that the group has assigned to other
        members are refused (KIP-447), or only the id of a group without members. Raises BrokerError
        (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID and FENCED_INSTANCE_ID for a member that was removed,
        UNSUPPORTED_VERSION for a coordinator before Kafka 2.5, which does not check members) or
        DeadlineExceededError; the transaction can only be aborted then.
        """
        self.check_open()
        group_id, generation_id, member_id, group_instance_id = (
            group if isinstance(group, GroupMetadata) else GroupMetadata(group)
        )
        await self._ask(
            AddOffsetsToTxnRequest(
                transactional_id=self._transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                group_id=group_id,
            ),
            AddOffsetsToTxnResponse,
            "AddOffsetsToTxn",
            lambda answer: [answer.error_code],
        )
        self._has_offsets = True
        topics = [
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[_committed(place[1], offsets[place]) for place in places],
            )
            for topic, places in groupby(sorted(offsets), key=lambda place: place[0])
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=group_instance_id,
            topics=topics,
        )
        await self._ask(
            request,
            TxnOffsetCommitResponse,
            "TxnOffsetCommit",
            lambda answer: [p.error_code for topic in answer.topics for p in topic.partitions],
            coordinator=(CoordinatorType.GROUP, group_id),
            least_version=FIRST_VERSION_WITH_MEMBERSHIP if member_id else 0,
        )

    async def end(self, *, commit: bool) -> None:
        """Commit or abort, when all records are delivered or failed.

        A request that adds partitions is answered first: the coordinator would add them after the end, and so open
        a transaction that this producer does not know of. A producer that is FENCED stays FENCED. Raises BrokerError
        or DeadlineExceededError.
        """
        is_fenced = self.state is TransactionState.FENCED
        # Before the wait, so that no task can send meanwhile.
        self.state = TransactionState.ENDING
        async with self._adding:
            is_fenced = is_fenced or self._is_fenced()
            self.state = TransactionState.ENDING
            await self._end(commit=commit)
        self.state = TransactionState.FENCED if is_fenced else TransactionState.READY

    def _is_fenced(self) -> bool:
        """Return whether the producer can only be closed, as `fail` may have found while `end` waited."""
        return self.state is TransactionState.FENCED

    async def _end(self, *, commit: bool) -> None:
        if self._added or self._has_offsets:
            await self._ask(
                EndTxnRequest(
                    transactional_id=self._transactional_id,
                    producer_id=self.producer_id,
                    producer_epoch=self.producer_epoch,
                    committed=commit,
                ),
                EndTxnResponse,
                "EndTxn",
                lambda answer: [answer.error_code],
            )
        self._added.clear()
        self._new.clear()
        self._has_offsets = False

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Enclose the end of a transaction: if the end fails, or is cancelled, the producer can only be closed."""
        try:
            yield
        except (BrokerError, ClientError) as error:
            self.error = error
            raise
        finally:
            if self.state not in (TransactionState.READY, TransactionState.FENCED):
                self.error = self.error or AbandonedError("the call that ended the last transaction was cancelled")
                self.state = TransactionState.FENCED

    def fail(self, error: Exception) -> None:
        """Note that a record of the open transaction failed: the transaction can only be aborted, or the producer is
        fenced. The error that has fenced the producer is kept: it is the one that tells the user why.
        """
        if self.state is TransactionState.FENCED and self.error is not None:
            return
        self.error = error
        if isinstance(error, BrokerError) and error.code in FATAL_CODES:
            self.state = TransactionState.FENCED
        elif self.state is TransactionState.IN_TRANSACTION:
            self.state = TransactionState.MUST_ABORT

    # --- the sender's side ---

    def has_new_partitions(self) -> bool:
        """Return whether partitions must be added to the transaction before records are sent to them."""
        return bool(self._new)

    def is_added(self, topic: str, partition: int) -> bool:
        """Return whether the coordinator has added the partition to the transaction."""
        return (topic, partition) in self._added

    async def add_partitions(self) -> None:
        """Add the partitions that are new in this transaction at the coordinator."""
        async with self._adding:
            if self._new:
                await self._add(sorted(self._new))

    async def _add(self, places: list[AnyTopicPartition]) -> None:
        topics = [
            AddPartitionsToTxnTopic(name=topic, partitions=[partition for _, partition in group])
            for topic, group in groupby(places, key=lambda place: place[0])
        ]
        try:
            await self._ask(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self._transactional_id,
                    v3_and_below_producer_id=self.producer_id,
                    v3_and_below_producer_epoch=self.producer_epoch,
                    v3_and_below_topics=topics,
                ),
                AddPartitionsToTxnResponse,
                "AddPartitionsToTxn",
                lambda answer: [
                    partition.partition_error_code
                    for topic in answer.results_by_topic_v3_and_below
                    for partition in topic.results_by_partition
                ],
            )
        except (BrokerError, ClientError) as error:
            self.fail(error)
        else:
            self._added.update(places)
        self._new.difference_update(places)

    async def _ask(
        self,
        request: Message | Callable[[int], Message],
        answer_class: type[Response],
        what: str,
        codes_of: Callable[[Response], list[int]],
        coordinator: tuple[CoordinatorType, str] | None = None,
        least_version: int = 0,
    ) -> Response:
        """Ask a coordinator (the transaction's by default) until it succeeds; a fatal refusal fences the producer.

        `request` is a message, or a function from a version to a message. Raises BrokerError, with UNSUPPORTED_VERSION
        also for a coordinator without version `least_version`.
        """
        kind, key = coordinator or (CoordinatorType.TRANSACTION, self._transactional_id)

        async def attempt() -> Response:
            node = await self._cluster.coordinator(kind, key)
            connection = await self._cluster.connection(node)
            version = connection.versions.version(api_key_of(answer_class))
            if version < least_version:
                raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"{what} needs version {least_version}")
            message = request if isinstance(request, Message) else request(version)
            answer = await connection.request(message, answer_class, version=version)
            for code in codes_of(answer):
                if code:
                    raise BrokerError(ErrorCode(code), what)
            return answer

        def before_retry(failure: Exception) -> None:
            if not isinstance(failure, BrokerError) or failure.code in COORDINATOR_MOVED_CODES:
                self._cluster.forget_coordinator(kind, key)

        try:
            return await retry(
                attempt, self._config, timeout_ms=self._config.max_block_ms, what=what, before_retry=before_retry
            )
        except BrokerError as error:
            self.fail(error)
            raise


def _committed(partition: int, offset: int | CommittedOffset) -> TxnOffsetCommitRequestPartition:
    known = offset if isinstance(offset, CommittedOffset) else CommittedOffset(offset)
    return TxnOffsetCommitRequestPartition(
        partition_index=partition, committed_offset=known.offset, committed_metadata=known.metadata
    )
