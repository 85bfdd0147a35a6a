"""Application of metadata changes to this broker's partitions: their logs, configurations and roles."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol
from uuid import UUID

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import CLUSTER_METADATA
from ....protocol.schema import NO_UUID
from ....protocol.topic_partition import AnyTopicPartition, TopicPartition
from ....storage.log.log_config import LogConfig
from ....storage.log.partition_log import PartitionLog
from ....storage.log_manager import LogManager
from ...metadata.changes import (
    BrokerConfigChanged,
    MetadataChange,
    PartitionsAdded,
    PartitionsChanged,
    TopicConfigChanged,
    TopicDeleted,
)
from ...metadata.state import NO_LEADER, PartitionState, TopicState
from ...metadata.store import MetadataStore
from ..partition import Partition
from ..partition_registry import PartitionRegistry
from .later_logs import LaterLogs
from .leadership import ReplicationRules

logger = logging.getLogger(__name__)

MOST_NAMED = 20
"""Partitions that one log line names."""


class Copying(Protocol):
    """A copier of partitions from their leaders (`fetcher.ReplicaFetchers`)."""

    def follow(self, partition: Partition, leader_id: int) -> None:
        """Copy a partition, which has become a follower, from this leader only."""

    def forget(self, partition: Partition) -> None:
        """Stop copying a partition."""


class InCluster(Protocol):
    """A view of the replication of a broker in a cluster of several (`replication.Replication`)."""

    rules: ReplicationRules
    copying: Copying


class LeadershipListener(Protocol):
    """A listener for the partitions that this broker leads, such as the coordinators."""

    def elected(self, partition: Partition) -> None:
        """Handle that this broker leads the partition, for the first time or in a new leader epoch."""

    def resigned(self, partition: Partition) -> None:
        """Handle that this broker does not lead the partition any more; the partition may be deleted."""


class Replicas:
    """An applier of metadata changes to the logs and the partition registry of one broker."""

    def __init__(
        self,
        metadata: MetadataStore,
        logs: LogManager,
        partitions: PartitionRegistry,
        replication: InCluster | None = None,
    ) -> None:
        """Apply changes to these parts; without ``replication`` the broker is alone and leads all its partitions."""
        self._metadata = metadata
        self._logs = logs
        self._partitions = partitions
        self._rules = replication.rules if replication else None
        self._copying = replication.copying if replication else None
        self._listeners: list[LeadershipListener] = []
        self._knows_roles = replication is None
        self._later = LaterLogs()
        self._missing: set[tuple[UUID, int]] = set()
        """Partitions, by topic id and index, whose log directory is missing."""
        self._unmade: dict[AnyTopicPartition, str] = {}
        """Partitions whose logs could not be created or opened, with the reason; they are queued in `_later`."""

    def listen(self, listener: LeadershipListener) -> None:
        """Notify ``listener`` of every partition that this broker starts or stops leading."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Apply the present metadata, and subscribe to its changes. Raises BrokerError if a log cannot be created.

        In a cluster, partitions have no leader until `take_roles`: the roles at the last stop are outdated.
        """
        self._take_broker_config()
        self._find_lost_logs()
        for topic in self._metadata.topics.values():
            self._add_partitions(topic, topic.partitions)
        self._metadata.subscribe(self.apply)

    def _find_lost_logs(self) -> None:
        """Find the partitions that only this broker has, and that are in none of its log directories.

        A disk that is not mounted looks like a new disk. If a log directory of this lone broker is missing, such a
        partition is offline until the directory is back, as in Kafka (KIP-858); else it begins empty, with a WARNING.
        Brokers of a cluster leave the decision to the controller.
        """
        lost = [
            (topic, state.index)
            for topic in self._metadata.topics.values()
            for state in topic.partitions
            if state.replicas == [self._metadata.node_id] and not self._logs.has_files_of(topic.name, state.index)
        ]
        if self._rules is None and self._logs.missing_directory_ids:
            waiting = [(topic, index) for topic, index in lost if not self._may_begin_empty(topic)]
            self._missing = {(topic.topic_id, index) for topic, index in waiting}
            lost = [(topic, index) for topic, index in lost if (topic.topic_id, index) not in self._missing]
            if waiting:
                logger.error(
                    "%d partitions are offline, as their log directory is missing: %s. Bring the directory with "
                    "directory.id=%s back (an entry of log.dirs, a disk that is not mounted) and restart the broker. "
                    "If it is lost for good, delete the topics, or set unclean.leader.election.enable=true for them "
                    "and restart: they begin empty",
                    len(waiting),
                    _named(waiting),
                    " or ".join(self._logs.missing_directory_ids),
                )
            else:
                self._logs.forget_missing_directories()
        if lost:
            logger.warning(
                "%d partitions have no log in any of log.dirs and begin empty: %s. If a disk is not mounted, or "
                "log.dirs lacks an entry: stop the broker and bring the logs back before clients write anything",
                len(lost),
                _named(lost),
            )

    def _may_begin_empty(self, topic: TopicState) -> bool:
        own = topic.configs.get("unclean.leader.election.enable")
        return self._metadata.config.unclean_leader_election_enable if own is None else own.lower() == "true"

    async def make_later_logs(self) -> None:
        """Create the logs of new partitions that were too many for one turn of the event loop, until cancelled."""
        while True:
            await self._later.turn()
            for topic_id, index in self._later.take():
                topic = self._metadata.topic_by_id(topic_id)
                if topic is None or index >= len(topic.partitions) or self._partitions.find(topic.name, index):
                    continue
                if self._partitions.is_offline(topic.name, index) and (topic.name, index) not in self._unmade:
                    # Its log directory has failed meanwhile.
                    continue
                self._add_partitions(topic, [topic.partitions[index]])

    async def wait_for_logs(self, topics: Collection[str]) -> None:
        """Wait until this broker has created the logs of these topics, as far as they exist."""
        for name in topics:
            topic = self._metadata.topics.get(name)
            if topic is not None:
                await self._later.wait_for(topic.topic_id)

    def take_roles(self) -> None:
        """Take the roles of the metadata, which is up to date from now on.

        Logs that the metadata does not assign to this broker are renamed and kept, as in Kafka (`-stray`).
        Raises BrokerError UNKNOWN_LEADER_EPOCH if a log has records of a leader that the metadata does not know yet,
        OSError.
        """
        self._knows_roles = True
        if self._rules is not None:
            self._check_leader_epochs()
            self._set_strays_aside()
        for topic in self._metadata.topics.values():
            self._change(topic, topic.partitions)

    def _check_leader_epochs(self) -> None:
        for topic in self._metadata.topics.values():
            for state in topic.partitions:
                log = self._logs.get(topic.name, state.index)
                if log is None or self._is_of_older_topic(log, topic) or log.leader_epoch <= state.leader_epoch:
                    continue
                raise BrokerError(
                    ErrorCode.UNKNOWN_LEADER_EPOCH,
                    f"{topic.name}-{state.index} has records of leader epoch {log.leader_epoch} here, and by the "
                    f"controller's metadata the epoch is {state.leader_epoch}: the controller has lost metadata. "
                    "Nothing was deleted here. Give it the newest copy: `gregor metadata recover` (docs/cluster.md)",
                )

    def _set_strays_aside(self) -> None:
        node_id, topics = self._metadata.node_id, self._metadata.topics
        for topic, index in self._logs.partitions():
            known = topics.get(topic)
            is_known = known is not None and index < len(known.partitions)
            if topic != CLUSTER_METADATA and not (is_known and node_id in topics[topic].partitions[index].replicas):
                self._set_aside(topic, index, "the metadata does not assign it to this broker")

    def _set_aside(self, topic: str, index: int, reason: str) -> None:
        path = self._logs.set_aside(topic, index)
        logger.warning("%s-%d is kept as %s: %s", topic, index, path, reason)

    def _take_broker_config(self) -> None:
        config = self._metadata.config
        self._logs.defaults = config.log_config()
        self._logs.maintenance.producer_id_expiration_ms = config.producer_id_expiration_ms

    def apply(self, change: MetadataChange) -> None:
        """Apply one change."""
        match change:
            case PartitionsAdded(topic, first):
                self._add_partitions(topic, self._later.rest_of(topic, topic.partitions[first:]))
            case PartitionsChanged(topic, indexes, is_recorded):
                changed = set(indexes)
                states = [state for state in topic.partitions if state.index in changed]
                self._change(topic, states, is_recorded=is_recorded)
            case TopicDeleted(topic, is_recorded):
                for state in topic.partitions:
                    self._remove(topic, state.index, is_recorded=is_recorded)
            case TopicConfigChanged(topic):
                self._configure(topic)
            case BrokerConfigChanged():
                self._take_broker_config()
                for topic in self._metadata.topics.values():
                    self._configure(topic)

    # --- partitions and their logs

    def _add_partitions(self, topic: TopicState, states: list[PartitionState]) -> None:
        config = self._metadata.topic_config(topic.name)
        for state in states:
            if self._metadata.node_id not in state.replicas:
                continue
            if (topic.topic_id, state.index) in self._missing:
                self._partitions.take_offline(topic.name, state.index)
                continue
            try:
                log = self._log_of(topic, state.index, config)
            except (OSError, BrokerError) as fault:
                self._make_later(topic, state.index, fault)
                continue
            if self._unmade.pop((topic.name, state.index), None) is not None:
                logger.info("%s-%d is online now", topic.name, state.index)
            partition = Partition(log, leader_epoch=state.leader_epoch)
            if not self._is_alone(state):
                self._logs.restore_high_watermark(log)
                partition.become_follower(_leaderless(state))
            self._partitions.add(partition)
            self._assign(partition, state, is_here_since_now=True)

    def _log_of(self, topic: TopicState, index: int, config: LogConfig) -> PartitionLog:
        """Return the log of a partition, created if there is none. Raises OSError, BrokerError."""
        log = self._logs.get(topic.name, index)
        if log is not None and self._is_of_older_topic(log, topic):
            self._drop_older(log)
            log = None
        if log is None:
            return self._logs.create(topic.name, index, topic.topic_id, config)
        log.config = config
        if log.topic_id is None:
            log.note_topic_id(topic.topic_id)
        return log

    def _make_later(self, topic: TopicState, index: int, fault: OSError | BrokerError) -> None:
        """Keep a partition offline until its log can be created or opened; log each reason once."""
        reason = (fault.strerror if isinstance(fault, OSError) else None) or str(fault)
        if self._unmade.get((topic.name, index)) != reason:
            logger.error("%s-%d is offline, its log cannot be opened: %s: retrying", topic.name, index, reason)
        self._unmade[topic.name, index] = reason
        self._partitions.take_offline(topic.name, index)
        self._later.try_again(topic.topic_id, index)

    def take_offline(self, names: Iterable[TopicPartition]) -> None:
        """Stop serving partitions whose log directory has failed (Kafka `ReplicaManager.handleLogDirFailure`)."""
        for topic, index in names:
            self._unmade.pop((topic, index), None)
            partition = self._partitions.find(topic, index)
            if partition is not None:
                self._stop_copying(partition)
            was_leader = partition is not None and partition.is_leader
            self._partitions.take_offline(topic, index)
            if partition is not None and was_leader:
                self._tell_resigned(partition)

    def _is_of_older_topic(self, log: PartitionLog, topic: TopicState) -> bool:
        """Return whether a log belongs to an older topic of the same name, whose records must not be served."""
        return self._rules is not None and log.topic_id not in (None, NO_UUID, topic.topic_id)

    def _drop_older(self, log: PartitionLog) -> None:
        if log.topic_id in self._metadata.state.removed_topic_ids:
            logger.warning("%s-%d belongs to a topic that was deleted: removed", log.topic, log.partition)
            self._logs.delete(log.topic, log.partition)
        else:
            self._set_aside(log.topic, log.partition, f"its topic id {log.topic_id} is not the topic's present id")

    def _change(self, topic: TopicState, states: list[PartitionState], *, is_recorded: bool = True) -> None:
        for state in states:
            partition = self._partitions.find(topic.name, state.index)
            if self._metadata.node_id not in state.replicas:
                self._remove(topic, state.index, is_recorded=is_recorded)
            elif partition is None:
                if not self._partitions.is_offline(topic.name, state.index):
                    self._add_partitions(topic, [state])
            else:
                self._assign(partition, state)

    def _remove(self, topic: TopicState, index: int, *, is_recorded: bool = True) -> None:
        partition = self._partitions.find(topic.name, index)
        if partition is not None:
            if self._copying is not None:
                self._copying.forget(partition)
            was_leader = partition.is_leader
            self._partitions.remove(topic.name, index)
            if was_leader:
                self._tell_resigned(partition)
        self._partitions.remove(topic.name, index)
        self._unmade.pop((topic.name, index), None)
        try:
            if is_recorded:
                self._logs.delete(topic.name, index)
            elif self._logs.get(topic.name, index) is not None:
                self._set_aside(topic.name, index, "a snapshot of the metadata does not assign it to this broker")
        except OSError as fault:
            logger.error("%s-%d is not deleted: %s", topic.name, index, fault)

    def _configure(self, topic: TopicState) -> None:
        config = self._metadata.topic_config(topic.name)
        for partition in self._partitions.of_topic(topic.name).values():
            partition.log.config = config
            partition.wake_waiters()

    # --- roles

    def _is_alone(self, state: PartitionState) -> bool:
        """Return whether the replica here is the partition's only one, and its leader."""
        return self._rules is None or (state.replicas == [self._metadata.node_id] == [state.leader])

    def _assign(self, partition: Partition, state: PartitionState, *, is_here_since_now: bool = False) -> None:
        if not self._knows_roles:
            return
        was_leader = partition.is_leader
        if self._rules is None or self._is_alone(state):
            is_new = is_here_since_now or partition.role is not None or partition.leader_epoch != state.leader_epoch
            if partition.role is not None:
                self._stop_copying(partition)
                partition.lead_alone(state.leader_epoch)
            partition.leader_epoch = state.leader_epoch
        elif state.leader == self._metadata.node_id:
            self._stop_copying(partition)
            is_new = partition.become_leader(state, self._rules)
        else:
            self._follow(partition, state)
            if was_leader:
                self._tell_resigned(partition)
            return
        if is_new:
            for listener in self._listeners:
                listener.elected(partition)

    def _follow(self, partition: Partition, state: PartitionState) -> None:
        if not partition.become_follower(state) or self._copying is None:
            return
        if state.leader == NO_LEADER:
            self._copying.forget(partition)
        else:
            self._copying.follow(partition, state.leader)

    def _stop_copying(self, partition: Partition) -> None:
        if self._copying is not None:
            self._copying.forget(partition)

    def _tell_resigned(self, partition: Partition) -> None:
        for listener in self._listeners:
            listener.resigned(partition)


def _leaderless(state: PartitionState) -> PartitionState:
    return PartitionState(state.index, NO_LEADER, state.leader_epoch, state.replicas, state.isr)


def _named(partitions: Sequence[tuple[TopicState, int]]) -> str:
    """Return the names of partitions for one log line."""
    named = ", ".join(f"{topic.name}-{index}" for topic, index in partitions[:MOST_NAMED])
    return f"{named} and {len(partitions) - MOST_NAMED} more" if len(partitions) > MOST_NAMED else named
