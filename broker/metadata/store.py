"""The store of the cluster's metadata: its log, changes, and notification of subscribers (reads: `cluster_view.py`).

Every change first appends records to ``__cluster_metadata-0``, then applies them to the state, then calls each
subscriber, all without a wait: other tasks see all of a change or nothing. The controller creates the records
(`commit`); other nodes fetch them from the controller's log (`peers/metadata_follower.py`) and apply them to their own
store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from time import perf_counter
from uuid import UUID, uuid4

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.internal_topics import CLUSTER_METADATA, INTERNAL_TOPICS
from ...protocol.messages.cluster_metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
)
from ...protocol.records.record import Buffer
from ...protocol.schema import Message
from ...storage.clock import Clock
from ...storage.log.log_config import LONG_MAX, LogConfig
from ...storage.log_manager import LogManager
from ..config import BrokerConfig
from . import new_topics, replica_placement
from .adoption import adoption_records, delete_removed, with_epoch_after
from .change_tracking import ChangeTracker, differences
from .changes import BrokerConfigChanged, MetadataChange, Subscriber
from .cluster_view import ClusterView
from .log import MetadataLog
from .log_pace import LogPace
from .lost_log import check_is_whole, warn_of_loss
from .producer_ids import first_id_after, producer_ids_in
from .state import (
    ClusterState,
    Entity,
    ResourceType,
    TopicState,
    partition_record,
    quota_entity,
    topic_records,
)
from .topic_names import validate_no_collision, validate_topic_name

logger = logging.getLogger(__name__)

METADATA_TOPIC_ID = UUID(int=1)
"""The id of the metadata topic in every cluster (KIP-595)."""

METADATA_VERSION = "metadata.version"
NEWEST_METADATA_VERSION = 21
"""The level of 3.9-IV0 (Kafka `MetadataVersion`)."""


class MetadataStore(ClusterView):
    """A durable store of the cluster's topics, configurations, quotas and credentials."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        super().__init__(config)
        self.cluster_id = ""
        self.is_controller = config.roles.is_controller
        """Whether this node is the controller; else it follows the controller."""
        self.create_elsewhere: Callable[[new_topics.NewTopic], None] | None = None
        """Function of a follower that requests a topic from the controller, in the background."""
        self._growth = trio.lowlevel.ParkingLot()
        self._clock = clock
        self._log: MetadataLog | None = None
        self._subscribers: list[Subscriber] = []
        self.pace = LogPace()

    def open(self, logs: LogManager) -> None:
        """Replay the log, which is one of ``logs``; a lone broker also adopts logs that the metadata does not contain.

        The controller flushes its decisions before it publishes them, as in Kafka's KRaft: if they were lost in a
        machine crash, two leaders could get the same epoch, or two producers the same id. Raises BrokerError if the
        disk fails, and if the controller's log is shorter than it was (`check_is_whole`).
        """
        is_followed = self.is_controller and not self.is_alone
        settings = LogConfig(
            retention_ms=-1,
            flush_messages=1 if self.is_controller else LONG_MAX,
            segment_bytes=min(
                self.config.metadata_log_segment_bytes, self.config.metadata_log_max_record_bytes_between_snapshots
            ),
        )
        if is_followed:
            check_is_whole(logs)
        elif self.is_controller:
            warn_of_loss(logs)
        log = logs.get(CLUSTER_METADATA, 0) or logs.create(CLUSTER_METADATA, 0, METADATA_TOPIC_ID, settings)
        log.config = settings
        self.cluster_id = logs.cluster_id or ""
        self._log = MetadataLog(
            log, self._clock, snapshot_every_bytes=self.config.metadata_log_max_record_bytes_between_snapshots
        )
        self._log.replay(self.state.apply)
        delete_removed(self.state, logs)
        if self.is_controller:
            if not self.is_alone:
                self._log.begin_epoch(self.node_id)
            if METADATA_VERSION not in self.state.features:
                self.commit([FeatureLevelRecord(name=METADATA_VERSION, feature_level=NEWEST_METADATA_VERSION)])
            if self.config.roles.is_broker and self.state.brokers.keys() <= {self.node_id}:
                self._adopt(logs)
            self._raise_leader_epochs(logs)
            self.give_no_producer_id_before(first_id_after(producer_ids_in(logs)))
        if is_followed:
            # From now on a lost log is detected.
            for write in logs.maintenance.due_checkpoints():
                write()
        self._take_dynamic_config()

    def _raise_leader_epochs(self, logs: LogManager) -> None:
        """Start a new leader epoch for partitions with records of a later epoch here: the metadata is an older copy."""
        for topic in self.state.topics.values():
            overtaken = [
                partition_record(topic.topic_id, raised)
                for partition in topic.partitions
                if (raised := with_epoch_after(partition, topic, logs)) is not partition
            ]
            if overtaken:
                self.commit(overtaken)

    def _adopt(self, logs: LogManager) -> None:
        internal = {name: new_topics.internal_configs(self, name) for name in INTERNAL_TOPICS}
        for records in adoption_records(self.state, logs, self.node_id, internal):
            self.commit(records)

    @property
    def log(self) -> MetadataLog:
        """The metadata log itself. Raises BrokerError KAFKA_STORAGE_ERROR before `open`."""
        if self._log is None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log is not open.")
        return self._log

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call ``subscriber`` with every change from now on."""
        self._subscribers.append(subscriber)

    @property
    def end_offset(self) -> int:
        """The offset of the next metadata record; it grows with every change."""
        return self._log.end_offset if self._log else 0

    @property
    def epoch(self) -> int:
        """The leader epoch of the metadata log."""
        return self._log.epoch if self._log else 0

    # --- topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = replica_placement.DEFAULT,
        replication_factor: int = replica_placement.DEFAULT,
        assignments: Sequence[tuple[int, Sequence[int]]] = (),
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> TopicState:
        """Create a topic and return it; with ``validate_only``, return it without creating it.

        Raises BrokerError with Kafka's code and message: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS,
        INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST,
        POLICY_VIOLATION.
        """
        validate_topic_name(name)
        if name == CLUSTER_METADATA:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        if name in self.topics:
            raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        validate_no_collision(name, self.topics)
        own = new_topics.own_configs(configs or {})
        held = new_topics.placement(self, partitions, replication_factor, assignments)
        topic = TopicState(name, uuid4(), new_topics.partitions_on(self, held), own)
        if validate_only:
            return topic
        self.commit(list(topic_records(topic)))
        return self.topics[name]

    def ensure_topic(self, name: str) -> TopicState:
        """Return the topic called ``name``, created with the broker's defaults if it is missing.

        Raises BrokerError as `create_topic` does; UNKNOWN_TOPIC_OR_PARTITION on a node that must ask the controller
        first, and for the metadata topic.
        """
        known = self.topics.get(name)
        if known is not None:
            return known
        if name == CLUSTER_METADATA:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        new = new_topics.on_first_use(self, name)
        if self.is_controller:
            return self.create_topic(
                name, partitions=new.partitions, replication_factor=new.replication_factor, configs=new.configs
            )
        validate_topic_name(name)
        if self.create_elsewhere is not None:
            self.create_elsewhere(new)
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises BrokerError UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DELETION_DISABLED."""
        topic = self.topic(name)
        if not self.config.delete_topic_enable:
            raise BrokerError(ErrorCode.TOPIC_DELETION_DISABLED)
        self.commit([RemoveTopicRecord(topic_id=topic.topic_id)])

    def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        """Increase a topic's partitions to ``count``.

        Raises BrokerError with Kafka's code and message: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS,
        INVALID_REPLICA_ASSIGNMENT, POLICY_VIOLATION.
        """
        topic = self.topic(name)
        have = len(topic.partitions)
        if count == have:
            raise BrokerError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
        if count < have:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {name} currently has {have} partition(s); {count} would not be an increase.",
            )
        new_topics.validate_new_partitions(count - have)
        replication_factor = len(topic.partitions[0].replicas) if topic.partitions else 1
        if assignments is None:
            held = new_topics.spread(self, count - have, replication_factor)
        else:
            held = replica_placement.validate_additions(
                assignments, count - have, replication_factor, self.registered_ids
            )
        if validate_only:
            return
        new = new_topics.partitions_on(self, held, first=have)
        self.commit([partition_record(topic.topic_id, partition) for partition in new])

    # --- configurations

    def set_configs(
        self, kind: ResourceType, name: str, configs: Mapping[str, str], again: Collection[str] = ()
    ) -> None:
        """Replace the resource's dynamic configuration by ``configs``, which must be valid.

        Keys in ``again`` are recorded even if their values are unchanged: so a broker reads a changed keystore
        (KAFKA-14136).
        Raises BrokerError POLICY_VIOLATION for more changes than Kafka's `QuorumController` allows at once.
        """
        before = self.state.configs_of(kind, name)
        changed = {key: value for key, value in configs.items() if key in again or before.get(key) != value}
        removed = {key: None for key in before if key not in configs}
        records = [
            ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
            for key, value in {**changed, **removed}.items()
        ]
        if len(records) > new_topics.MOST_RECORDS_OF_A_REQUEST:
            raise BrokerError(ErrorCode.POLICY_VIOLATION, new_topics.TOO_LARGE_A_BATCH)
        if records:
            self.commit(records)

    # --- quotas, credentials, features, producer ids

    def set_quotas(self, changes: Iterable[tuple[Entity, str, float | None]]) -> None:
        """Set (entity, key, value) quotas, which must be valid; a value of None removes one."""
        records = [
            ClientQuotaRecord(entity=quota_entity(entity), key=key, value=value or 0.0, remove=value is None)
            for entity, key, value in changes
            if value != self.state.quotas.get(entity, {}).get(key)
        ]
        if records:
            self.commit(records)

    def set_scram(self, credentials: Sequence[Message]) -> None:
        """Store and delete SCRAM credentials, given as records."""
        if credentials:
            self.commit(credentials)

    def change_tokens(self, records: Sequence[Message]) -> None:
        """Add, change and remove delegation tokens, given as records."""
        if records:
            self.commit(records)

    def change_acls(self, records: Sequence[Message]) -> None:
        """Add and remove ACLs, given as records."""
        if records:
            self.commit(records)

    def set_features(self, levels: Mapping[str, int]) -> None:
        """Finalize features at these levels, which must be supported."""
        changed = {name: level for name, level in levels.items() if self.state.features.get(name) != level}
        if changed:
            self.commit([FeatureLevelRecord(name=name, feature_level=level) for name, level in changed.items()])

    def allocate_producer_ids(self, count: int) -> int:
        """Reserve ``count`` new producer ids; return the first of them. Raises BrokerError if the disk fails."""
        first = self.state.next_producer_id
        self.commit([ProducerIdsRecord(broker_id=self.node_id, next_producer_id=first + count)])
        return first

    def give_no_producer_id_before(self, first: int) -> None:
        """Set the next producer id to ``first`` at least: smaller ids are used in logs.

        Raises BrokerError if the disk fails.
        """
        if first > self.state.next_producer_id:
            logger.warning(
                "the logs have producer ids up to %d, and the metadata only ids below %d: the next producer id is %d",
                first - 1,
                self.state.next_producer_id,
                first,
            )
            self.commit([ProducerIdsRecord(broker_id=self.node_id, next_producer_id=first)])

    # --- changes

    def commit(self, records: Sequence[Message]) -> None:
        """Append related records to the log, apply them to the state, and notify subscribers.

        Raises BrokerError NOT_CONTROLLER on a follower, KAFKA_STORAGE_ERROR.
        """
        if not self.is_controller:
            raise BrokerError(ErrorCode.NOT_CONTROLLER)
        began_s = perf_counter()
        self.log.append(records)
        self.pace.commit_ms.record((perf_counter() - began_s) * 1000)
        self.pace.appended_records.record(len(records))
        self._apply(records)
        self.pace.commits_ms.append((perf_counter() - began_s) * 1000)
        self.pace.commit_count += 1

    def take(self, batches: Buffer) -> None:
        """Append batches of the controller's log to a follower's log, and apply each. Raises BrokerError."""
        for records in self.log.append_fetched(batches):
            self.pace.fetched_records.record(len(records))
            self._apply(records)

    def start_over(self) -> None:
        """Rebuild a follower's state from its log, after the log was truncated or replaced."""
        before, self.state = self.state, ClusterState()
        self.log.replay(self.state.apply)
        self._tell(differences(before, self.state))

    async def wait_for_growth(self) -> None:
        """Wait until the log has grown."""
        await self._growth.park()

    def _apply(self, records: Iterable[Message]) -> None:
        tracker = ChangeTracker(self.state, self.node_id)
        for record in records:
            tracker.apply(record)
        if self.log.snapshot_is_due:
            self.log.write_snapshot(self.state.records())
        self._growth.unpark_all()
        self._tell(tracker.changes())

    def _tell(self, changes: Iterable[MetadataChange]) -> None:
        for change in changes:
            if isinstance(change, BrokerConfigChanged):
                self._take_dynamic_config()
            for subscriber in list(self._subscribers):
                subscriber(change)

    def _take_dynamic_config(self) -> None:
        cluster = self.state.configs_of(ResourceType.BROKER, "")
        own = self.state.configs_of(ResourceType.BROKER, str(self.node_id))
        self.config.override(cluster, own)
