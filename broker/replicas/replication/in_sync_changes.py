"""The leader's requests to the controller for other in-sync sets (AlterPartition; Kafka `AlterPartitionManager`).

One request is in progress at a time, with all changes that were queued since the last one. A change that may have been
applied is requested again until it is answered or newer metadata replaces it: while it is pending, it counts for the
high watermark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

import trio

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionDataResponse,
    TopicData,
)
from ....protocol.schema import NO_UUID
from ....storage.log.partition_log import PartitionLog
from ...peers.peers import ControllerLink
from ..partition import Partition
from ..partition_registry import PartitionRegistry
from .leadership import InSyncChange

logger = logging.getLogger(__name__)

TIMEOUT_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
"""Pauses between two attempts; each further attempt doubles the pause."""
REFUSED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Nothing has changed, and the leader may request another change."""
OVERTAKEN = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The controller has a newer state, which will arrive with the metadata."""


class InSyncChanges:
    """A queue of the pending changes of all partitions that this broker leads."""

    def __init__(
        self, link: ControllerLink, node_id: int, broker_epoch: Callable[[], int], partitions: PartitionRegistry
    ) -> None:
        self._link = link
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._partitions = partitions
        self._wishes: dict[tuple[UUID, int], tuple[Partition, InSyncChange]] = {}
        self._has_wishes = trio.Event()

    def wish(self, log: PartitionLog, change: InSyncChange) -> None:
        """Queue a change for the controller."""
        partition = self._partitions.find(log.topic, log.partition)
        if partition is not None:
            self._wishes[log.topic_id or NO_UUID, log.partition] = (partition, change)
            self._has_wishes.set()

    async def run(self) -> None:
        """Send queued changes until cancelled."""
        pause_s = FIRST_PAUSE_S
        while True:
            await self._has_wishes.wait()
            self._has_wishes = trio.Event()
            if await self._ask(is_first_try=pause_s == FIRST_PAUSE_S):
                pause_s = FIRST_PAUSE_S
                continue
            self._has_wishes.set()
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _ask(self, *, is_first_try: bool) -> bool:
        """Send all pending changes; return whether none must be retried."""
        asked = {key: wish for key, wish in self._wishes.items() if _is_open(*wish)}
        self._wishes = dict(asked)
        if not asked:
            return True
        try:
            answer = await self._link.ask(self._request(asked), AlterPartitionResponse, timeout_s=TIMEOUT_S)
            if answer.error_code:
                raise BrokerError(ErrorCode(answer.error_code))
        except BrokerError as error:
            level = logging.INFO if is_first_try else logging.DEBUG
            logger.log(level, "in-sync sets could not be changed yet: %s", error.message or error.code.name)
            return False
        is_done = True
        for topic in answer.topics:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                wish = asked.get(key)
                if wish is None or self._wishes.get(key) is not wish:
                    continue
                if self._settle(*wish, data):
                    del self._wishes[key]
                else:
                    is_done = False
        return is_done

    def _request(self, asked: dict[tuple[UUID, int], tuple[Partition, InSyncChange]]) -> AlterPartitionRequest:
        topics: dict[UUID, TopicData] = {}
        for (topic_id, index), (_, change) in asked.items():
            data = PartitionData(
                partition_index=index,
                leader_epoch=change.leader_epoch,
                new_isr_with_epochs=[BrokerState(broker_id=node, broker_epoch=epoch) for node, epoch in change.in_sync],
                partition_epoch=change.partition_epoch,
            )
            topic = topics.setdefault(topic_id, TopicData(topic_id=topic_id))
            topic.partitions = [*topic.partitions, data]
        return AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _settle(self, partition: Partition, change: InSyncChange, answer: PartitionDataResponse) -> bool:
        """Apply the answer to one change; return False if it must be retried."""
        leadership = partition.leadership
        code = ErrorCode(answer.error_code)
        if leadership is None or code in OVERTAKEN:
            return True
        if code in REFUSED:
            leadership.refused(change, is_ineligible=code is ErrorCode.INELIGIBLE_REPLICA)
        elif code is not ErrorCode.NONE:
            return False
        elif (answer.leader_id, answer.leader_epoch) == (self._node_id, leadership.leader_epoch):
            leadership.granted(change, answer.isr, answer.partition_epoch)
            logger.info("%s-%d: in-sync replicas are %s", partition.topic, partition.index, sorted(answer.isr))
        partition.advance_high_watermark()
        return True


def _is_open(partition: Partition, change: InSyncChange) -> bool:
    leadership = partition.leadership
    return leadership is not None and leadership.wish is change
