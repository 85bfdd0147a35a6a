"""Reports to the controller which log directory holds each replica (KIP-858; Kafka `AssignmentsManager`)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from itertools import islice
from uuid import UUID

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)
from ...storage.log_manager import LogManager
from ..metadata.changes import MetadataChange, PartitionsAdded, PartitionsChanged
from ..metadata.state import TopicState
from ..metadata.store import MetadataStore
from ..peers.peers import ControllerLink
from ..replicas.partition import Partition
from ..replicas.partition_registry import PartitionRegistry

logger = logging.getLogger(__name__)

MOST_ASSIGNMENTS = 2250
"""Assignments in one request at most (Kafka `AssignmentsManager.MAX_ASSIGNMENTS_PER_REQUEST`)."""
TIMEOUT_S = 10.0
RETRY_S = 1.0
ABSENT_PAUSE_S = 5.0
"""Pause between two checks whether the logs that were missing exist now."""

Replica = tuple[UUID, int]
"""Topic id and partition."""


class DirectoryAssignments:
    """A task that compares the directories of replicas with the metadata whenever one of the two changes."""

    def __init__(
        self,
        link: ControllerLink,
        metadata: MetadataStore,
        logs: LogManager,
        partitions: PartitionRegistry,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._link = link
        self._metadata = metadata
        self._logs = logs
        self._partitions = partitions
        self._broker_epoch = broker_epoch
        self._unchecked: dict[Replica, None] = {}
        self._absent: dict[Replica, None] = {}
        """Replicas whose logs do not exist yet, or are offline."""
        self._has_unchecked = trio.Event()
        metadata.subscribe(self._note)

    def check(self, partition: Partition) -> None:
        """Queue a check of a partition whose directory may have changed."""
        topic = self._metadata.topics.get(partition.topic)
        if topic is not None:
            self._add(topic, [partition.index])

    def check_all(self) -> None:
        """Queue a check of all partitions of this broker."""
        for partition in self._partitions:
            self.check(partition)

    def _note(self, change: MetadataChange) -> None:
        if isinstance(change, PartitionsAdded):
            self._add(change.topic, range(change.first, len(change.topic.partitions)))
        elif isinstance(change, PartitionsChanged):
            self._add(change.topic, change.indexes)

    def _add(self, topic: TopicState, indexes: Iterable[int]) -> None:
        for index in indexes:
            if self._metadata.node_id in topic.partitions[index].replicas:
                self._unchecked[topic.topic_id, index] = None
                self._has_unchecked.set()

    async def run(self) -> None:
        """Check queued replicas and report wrong assignments, until cancelled."""
        while True:
            with trio.move_on_after(ABSENT_PAUSE_S if self._absent else math.inf):
                await self._has_unchecked.wait()
            self._has_unchecked = trio.Event()
            self._unchecked |= self._absent
            wrong = self._take_wrong()
            if wrong and not await self._tell(wrong):
                await trio.sleep(RETRY_S)
                self._unchecked |= dict.fromkeys(wrong)
            if self._unchecked:
                self._has_unchecked.set()

    def _take_wrong(self) -> dict[Replica, UUID]:
        """Empty the queue, and return the actual directory of each replica that the metadata assigns to another one."""
        unchecked, self._unchecked, self._absent = self._unchecked, {}, {}
        wrong = {replica: found for replica in unchecked if (found := self._wrong_directory(replica)) is not None}
        taken = dict(islice(wrong.items(), MOST_ASSIGNMENTS))
        self._unchecked |= {replica: None for replica in wrong if replica not in taken}
        return taken

    def _wrong_directory(self, replica: Replica) -> UUID | None:
        """Return the directory of a replica if the metadata names a different one, else None."""
        topic_id, index = replica
        topic = self._metadata.topic_by_id(topic_id)
        if topic is None or self._metadata.node_id not in topic.partitions[index].replicas:
            return None
        if self._partitions.find(topic.name, index) is None:
            self._absent[replica] = None
            return None
        home = self._logs.directory_of(topic.name, index)
        actual = None if home is None else home.directory_id
        return None if actual == topic.partitions[index].directory_of(self._metadata.node_id) else actual

    async def _tell(self, wrong: dict[Replica, UUID]) -> bool:
        """Report directories to the controller; return whether it accepted the request.

        A replica that the controller refuses is reported again at its next change.
        """
        try:
            answer = await self._link.ask(self._request(wrong), AssignReplicasToDirsResponse, timeout_s=TIMEOUT_S)
            if answer.error_code:
                raise BrokerError(ErrorCode(answer.error_code))
        except BrokerError as error:
            logger.info("the report of replica directories failed: %s", error)
            return False
        for directory in answer.directories:
            for topic in directory.topics:
                for result in topic.partitions:
                    if result.error_code:
                        code = ErrorCode(result.error_code).name
                        logger.info(
                            "partition %d of %s: the controller refused its directory: %s",
                            result.partition_index,
                            topic.topic_id,
                            code,
                        )
        return True

    def _request(self, wrong: dict[Replica, UUID]) -> AssignReplicasToDirsRequest:
        directories: dict[UUID, dict[UUID, list[PartitionData]]] = {}
        for (topic_id, index), directory in wrong.items():
            topics = directories.setdefault(directory, {})
            topics.setdefault(topic_id, []).append(PartitionData(partition_index=index))
        return AssignReplicasToDirsRequest(
            broker_id=self._metadata.node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                DirectoryData(
                    id=directory,
                    topics=[TopicData(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()],
                )
                for directory, topics in directories.items()
            ],
        )
