"""The controller itself: handles brokers' requests, decides with the modules of this package, and commits records."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import Enum, auto
from uuid import UUID

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    PartitionDataResponse,
    TopicDataResponse,
)
from ...protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryResult,
    PartitionResult,
    TopicResult,
)
from ...protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ...protocol.messages.broker_registration import BrokerRegistrationRequest
from ...protocol.messages.cluster_metadata_records import PartitionChangeRecord
from ...protocol.messages.describe_quorum import ReplicaState
from ...protocol.schema import Message
from ..config import BrokerConfig
from ..metadata.changes import BrokerConfigChanged, MetadataChange, TopicConfigChanged
from ..metadata.state import BrokerState, ClusterState, PartitionState, TopicState
from ..metadata.store import MetadataStore
from . import directories, elections, in_sync, liveness, registration
from .sessions import BrokerSessions, Session

logger = logging.getLogger(__name__)

UNCLEAN_ELECTION = "unclean.leader.election.enable"


NAMED_PARTITIONS = 10
"""Maximum number of partitions in one log line."""
LATE_S = 1.0
"""A controller that wakes this much too late was paused, and has not yet read the brokers' requests."""


class NextState(Enum):
    """The state of a broker after a heartbeat (Kafka `BrokerControlState`)."""

    FENCED = auto()
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    SHUTDOWN_NOW = auto()


class Controller:
    """A controller of one cluster, which alone changes the cluster's metadata."""

    def __init__(self, metadata: MetadataStore, config: BrokerConfig) -> None:
        self._metadata = metadata
        self._config = config
        self._sessions = BrokerSessions(config.broker_session_timeout_ms / 1000)
        self._new_session = trio.Event()
        self._new_configs = trio.Event()
        self.unclean_election_count = 0
        """Leaders elected since the start that were not in sync."""
        metadata.subscribe(self._note)

    @property
    def _state(self) -> ClusterState:
        return self._metadata.state

    async def run(self) -> None:
        """Fence brokers whose session times out, and elect preferred leaders, until cancelled."""
        now = trio.current_time()
        for broker in self._state.brokers.values():
            # Brokers that were active under the previous controller get a new session.
            if self._sessions.get(broker.node_id) is None:
                self._sessions.begin(broker.node_id, broker.epoch, now)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_sessions)
            nursery.start_soon(self._rebalance)
            nursery.start_soon(self._elect_where_allowed)

    def _note(self, change: MetadataChange) -> None:
        if isinstance(change, TopicConfigChanged | BrokerConfigChanged):
            self._new_configs.set()

    async def _elect_where_allowed(self) -> None:
        """Elect leaders for partitions without one when their configuration newly allows it (unclean elections)."""
        while True:
            await self._new_configs.wait()
            self._new_configs = trio.Event()
            try:
                self._commit(liveness.elections_of_leaderless(self._state, self._allows_unclean))
            except BrokerError as error:
                logger.error("no leaders elected for partitions without one: %s", error)

    async def _watch_sessions(self) -> None:
        while True:
            self._new_session = trio.Event()
            due = self._sessions.next_expiry()
            with trio.move_on_at(due):
                await self._new_session.wait()
                continue
            if trio.current_time() > due + LATE_S:
                logger.warning("this process was paused: restarting the session of every broker")
                self._sessions.begin_all_anew(trio.current_time())
            for node_id in self._sessions.expired(trio.current_time()):
                self._sessions.end(node_id)
                self._fence_silent(node_id)

    def _fence_silent(self, node_id: int) -> None:
        broker = self._state.brokers.get(node_id)
        if broker is None or broker.is_fenced:
            return
        logger.warning("broker %d has sent no heartbeat for %d ms", node_id, self._config.broker_session_timeout_ms)
        try:
            self._commit(liveness.fencing(self._state, broker, self._allows_unclean))
        except BrokerError as error:
            logger.error("broker %d cannot be fenced: %s", node_id, error)
            self._sessions.begin(node_id, broker.epoch, trio.current_time())

    async def _rebalance(self) -> None:
        while True:
            await trio.sleep(self._config.leader_imbalance_check_interval_seconds)
            if self._config.auto_leader_rebalance_enable:
                try:
                    self._commit(liveness.preferred_elections(self._state))
                except BrokerError as error:
                    logger.error("preferred leader election failed: %s", error)

    def _commit(self, records: Iterable[Message]) -> None:
        """Commit the decided records, if there are any. Raises BrokerError KAFKA_STORAGE_ERROR."""
        decided = list(records)
        if decided:
            unclean_count = elections.unclean_elections(self._state, decided)
            self._metadata.commit(decided)
            self.unclean_election_count += unclean_count

    def _allows_unclean(self, topic: TopicState) -> bool:
        own = topic.configs.get(UNCLEAN_ELECTION)
        return self._config.unclean_leader_election_enable if own is None else own.lower() == "true"

    # --- brokers

    def register(self, request: BrokerRegistrationRequest, *, is_here: bool = False) -> int:
        """Register a broker, fenced; return its epoch. ``is_here``: the broker runs in the controller's own process.

        Raises BrokerError as `registration.registering` does.
        """
        node_id, now = request.broker_id, trio.current_time()
        known = self._state.brokers.get(node_id)
        is_heard_of = known is not None and not known.is_fenced and self._sessions.is_valid(node_id, now)
        self._commit(
            registration.registering(
                self._state,
                request,
                cluster_id=self._metadata.cluster_id,
                next_epoch=self._metadata.end_offset,
                is_heard_of=is_heard_of and not is_here,
                unclean=self._allows_unclean,
            )
        )
        epoch = self._state.brokers[node_id].epoch
        self._sessions.begin(node_id, epoch, now, ends=not is_here)
        self._new_session.set()
        logger.info("broker %d is registered, epoch %d", node_id, epoch)
        self._tell_lost(self._state.brokers[node_id])
        return epoch

    def _tell_lost(self, broker: BrokerState) -> None:
        lost = list(directories.leaderless_for_a_lost_directory(self._state, broker))
        if lost:
            logger.warning(
                "broker %d has registered without the directory of the last in-sync replica of %d partitions (%s%s): "
                "they have no leader until that directory is back, or one of the other replicas is elected "
                "(kafka-leader-election.sh --election-type unclean)",
                broker.node_id,
                len(lost),
                ", ".join(lost[:NAMED_PARTITIONS]),
                ", ..." if len(lost) > NAMED_PARTITIONS else "",
            )

    def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        """Record a broker's heartbeat and its requested state. Raises BrokerError as `registered` does."""
        broker = self.registered(request.broker_id, request.broker_epoch)
        session = self._sessions.get(broker.node_id)
        if session is None:
            session = self._sessions.begin(broker.node_id, broker.epoch, trio.current_time())
            self._new_session.set()
        session.last_contact = trio.current_time()
        session.read_offset = max(session.read_offset, request.current_metadata_offset)
        self._commit(directories.failing(self._state, broker, set(request.offline_log_dirs), self._allows_unclean))
        session.unwritable = frozenset(request.gregor_unwritable_log_dirs)
        if session.unwritable:
            self._commit(directories.handing_over(self._state, broker, session.unwritable))
        becomes = self._next_state(broker, session, request)
        self._become(broker, session, becomes)
        return BrokerHeartbeatResponse(
            is_caught_up=session.read_offset >= broker.epoch,
            is_fenced=becomes in (NextState.FENCED, NextState.SHUTDOWN_NOW),
            should_shut_down=becomes is NextState.SHUTDOWN_NOW,
        )

    def registered(self, node_id: int, epoch: int) -> BrokerState:
        """Return the broker with this epoch. Raises BrokerError STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED."""
        broker = self._state.brokers.get(node_id)
        if broker is None:
            raise BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED)
        if broker.epoch != epoch:
            raise BrokerError(ErrorCode.STALE_BROKER_EPOCH)
        return broker

    def has_read(self, node_id: int, offset: int) -> None:
        """Record that a broker has all metadata below ``offset``, from which it fetches."""
        session = self._sessions.get(node_id)
        if session is not None:
            session.read_offset = max(session.read_offset, offset - 1)

    def observers(self, now_ms: int) -> list[ReplicaState]:
        """Return the brokers that follow the metadata log over the network, for DescribeQuorum."""
        now = trio.current_time()
        found = []
        for node_id in sorted(self._state.brokers):
            session = self._sessions.get(node_id)
            if session is None or not session.ends:
                continue
            last_ms = now_ms - round((now - session.last_contact) * 1000)
            is_caught_up = session.read_offset + 1 >= self._metadata.end_offset
            found.append(
                ReplicaState(
                    replica_id=node_id,
                    log_end_offset=session.read_offset + 1,
                    last_fetch_timestamp=last_ms,
                    last_caught_up_timestamp=now_ms if is_caught_up else last_ms,
                )
            )
        return found

    def _next_state(self, broker: BrokerState, session: Session, request: BrokerHeartbeatRequest) -> NextState:
        if broker.is_fenced:
            if request.want_shut_down:
                return NextState.SHUTDOWN_NOW
            is_ready = not request.want_fence and session.read_offset >= broker.epoch
            return NextState.UNFENCED if is_ready else NextState.FENCED
        if request.want_shut_down:
            if request.want_fence:
                return NextState.SHUTDOWN_NOW
            return self._next_of_shutdown(broker, session)
        if broker.in_controlled_shutdown:
            return self._next_of_shutdown(broker, session)
        return NextState.FENCED if request.want_fence else NextState.UNFENCED

    def _next_of_shutdown(self, broker: BrokerState, session: Session) -> NextState:
        """Return the next state of a broker in shutdown, which waits until the other brokers know the new leaders."""
        if session.shutdown_offset is None:
            return NextState.CONTROLLED_SHUTDOWN
        others = (
            other.read_offset
            for node_id, known in self._state.brokers.items()
            if node_id != broker.node_id and not known.is_fenced and (other := self._sessions.get(node_id)) is not None
            if other.ends
        )
        all_know = min(others, default=session.shutdown_offset) >= session.shutdown_offset
        if all_know and not liveness.leads_any(self._state, broker.node_id):
            return NextState.SHUTDOWN_NOW
        return NextState.CONTROLLED_SHUTDOWN

    def _become(self, broker: BrokerState, session: Session, state: NextState) -> None:
        match state:
            case NextState.UNFENCED if broker.is_fenced:
                logger.info("broker %d is unfenced", broker.node_id)
                self._commit(liveness.unfencing(self._state, broker, self._allows_unclean))
            case NextState.FENCED | NextState.SHUTDOWN_NOW if not broker.is_fenced:
                logger.info("broker %d is fenced", broker.node_id)
                self._commit(liveness.fencing(self._state, broker, self._allows_unclean))
            case NextState.CONTROLLED_SHUTDOWN if not broker.in_controlled_shutdown:
                logger.info("broker %d is about to stop", broker.node_id)
                self._commit(liveness.shutting_down(self._state, broker, self._allows_unclean))
                session.shutdown_offset = self._metadata.end_offset - 1
        if state is NextState.SHUTDOWN_NOW:
            self._sessions.end(broker.node_id)

    def unregister(self, node_id: int) -> None:
        """Remove a broker from the cluster for good. Raises BrokerError BROKER_ID_NOT_REGISTERED."""
        broker = self._state.brokers.get(node_id)
        if broker is None:
            raise BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {node_id} is not currently registered")
        self._commit(registration.unregistering(self._state, broker, self._allows_unclean))
        self._sessions.end(node_id)

    # --- partitions

    def alter_partitions(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """Set the in-sync replicas of partitions as their leader requests, independently for each partition.

        Raises BrokerError STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED.
        """
        self.registered(request.broker_id, request.broker_epoch)
        response = AlterPartitionResponse()
        for wanted in request.topics:
            by_id = self._state.topics_by_id.get(wanted.topic_id)
            topic = self._state.topics.get(wanted.topic_name) if wanted.topic_name else by_id
            response.topics.append(
                TopicDataResponse(
                    topic_name=wanted.topic_name,
                    topic_id=wanted.topic_id,
                    partitions=[
                        self._alter_partition(topic, partition, request.broker_id, version)
                        for partition in wanted.partitions
                    ],
                )
            )
        return response

    def _is_writable(self, partition: PartitionState, node_id: int) -> bool:
        session, broker = self._sessions.get(node_id), self._state.brokers.get(node_id)
        return session is None or broker is None or not directories.is_in(partition, broker, session.unwritable)

    def assign_directories(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        """Record which log directories a broker's replicas are in, independently for each replica (KIP-858).

        Raises BrokerError STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED.
        """
        broker = self.registered(request.broker_id, request.broker_epoch)
        records: list[PartitionChangeRecord] = []
        answers = [
            DirectoryResult(
                id=directory.id,
                topics=[
                    TopicResult(
                        topic_id=topic.topic_id,
                        partitions=[
                            PartitionResult(
                                partition_index=wanted.partition_index,
                                error_code=self._assign(
                                    broker, topic.topic_id, wanted.partition_index, directory.id, records
                                ),
                            )
                            for wanted in topic.partitions
                        ],
                    )
                    for topic in directory.topics
                ],
            )
            for directory in request.directories
        ]
        self._commit(records)
        return AssignReplicasToDirsResponse(directories=answers)

    def _assign(
        self, broker: BrokerState, topic_id: UUID, index: int, directory: UUID, records: list[PartitionChangeRecord]
    ) -> ErrorCode:
        topic = self._state.topics_by_id.get(topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        try:
            record = directories.assigning(self._state, broker, topic, in_sync.find_partition(topic, index), directory)
        except BrokerError as error:
            return error.code
        if record is not None:
            records.append(record)
        return ErrorCode.NONE

    def _alter_partition(
        self, topic: TopicState | None, wanted: PartitionData, leader_id: int, version: int
    ) -> PartitionDataResponse:
        if topic is None:
            return in_sync.refused(wanted.partition_index, ErrorCode.UNKNOWN_TOPIC_ID)
        try:
            record = in_sync.altering(self._state, topic, wanted, leader_id, self._is_writable)
            self._commit([] if record is None else [record])
        except BrokerError as error:
            return in_sync.refused(wanted.partition_index, error.code)
        partition = topic.partitions[wanted.partition_index]
        if partition.leader_epoch != wanted.leader_epoch and version < in_sync.FIRST_VERSION_WITH_NEW_LEADER:
            return in_sync.refused(wanted.partition_index, ErrorCode.FENCED_LEADER_EPOCH)
        if partition.leader != leader_id:
            return in_sync.refused(wanted.partition_index, ErrorCode.NEW_LEADER_ELECTED)
        return in_sync.altered(partition)
