"""The metadata store: changes, their durability, and their listeners."""

import logging
import shutil
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gregor.broker.config import BrokerConfig
from gregor.broker.metadata.change_tracking import differences
from gregor.broker.metadata.changes import (
    AclsChanged,
    BrokerConfigChanged,
    MetadataChange,
    PartitionsAdded,
    QuotasChanged,
    TopicConfigChanged,
    TopicDeleted,
)
from gregor.broker.metadata.state import ClusterState, PartitionState, ResourceType, TopicState, topic_records
from gregor.broker.metadata.store import MetadataStore
from gregor.broker.replicas.partition_registry import PartitionRegistry
from gregor.broker.replicas.replication.replicas import Replicas
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.internal_topics import CLUSTER_METADATA
from gregor.protocol.messages.cluster_metadata_records import (
    AccessControlEntryRecord,
    PartitionChangeRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
)
from gregor.storage.clock import ManualClock
from gregor.storage.log_manager import LogManager
from tests.storage.payloads import payload


class Opened:
    """A store over a log directory, which each instance opens again, with partitions served as by a broker."""

    def __init__(self, directory: Path, **config: int | str | bool) -> None:
        self.config = BrokerConfig(log_dirs=(str(directory),), **config)
        clock = ManualClock(1000)
        self.logs = LogManager(self.config.log_dirs, self.config.log_config(), clock, node_id=1)
        self.logs.open_all()
        self.store = MetadataStore(self.config, clock)
        self.store.open(self.logs)
        self.partitions = PartitionRegistry()
        Replicas(self.store, self.logs, self.partitions).start()
        self.changes: list[MetadataChange] = []
        self.store.subscribe(self.changes.append)

    def close(self) -> None:
        self.logs.close()


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    return Opened(tmp_path)


def reopened(opened: Opened, directory: Path) -> Opened:
    opened.close()
    return Opened(directory)


def refusal_of(error: pytest.ExceptionInfo[BrokerError]) -> tuple[ErrorCode, str | None]:
    return error.value.code, error.value.message


# --- topics


def test_a_topic_is_kept_after_a_restart(opened: Opened, tmp_path: Path) -> None:
    made = opened.store.create_topic("a", partitions=2, configs={"retention.ms": "5"})
    again = reopened(opened, tmp_path)
    assert again.store.topics["a"] == made
    assert again.store.topic_by_id(made.topic_id) is again.store.topics["a"]
    assert again.store.topic_config("a").retention_ms == 5


def test_creating_a_topic_notifies_subscribers_and_creates_its_logs(opened: Opened) -> None:
    topic = opened.store.create_topic("a", partitions=2)
    assert opened.changes == [PartitionsAdded(topic, 0)]
    assert len(opened.partitions.of_topic("a")) == 2
    assert opened.logs.get("a", 1) is not None


def test_a_topic_created_with_validate_only_does_not_exist(opened: Opened) -> None:
    topic = opened.store.create_topic("a", partitions=2, validate_only=True)
    assert len(topic.partitions) == 2
    assert "a" not in opened.store.topics
    assert opened.changes == []


def test_an_auto_created_topic_has_the_brokers_default_partition_count(tmp_path: Path) -> None:
    opened = Opened(tmp_path, num_partitions=3, default_replication_factor=3)
    assert len(opened.store.ensure_topic("a").partitions) == 3
    assert opened.store.ensure_topic("a") is opened.store.topics["a"]


def test_internal_topics_have_kafkas_partition_counts_and_configs(opened: Opened) -> None:
    offsets = opened.store.ensure_topic("__consumer_offsets")
    transactions = opened.store.ensure_topic("__transaction_state")
    assert (len(offsets.partitions), len(transactions.partitions)) == (50, 50)
    assert offsets.is_internal
    assert opened.store.topic_config("__consumer_offsets").cleanup_policy == "compact"
    assert transactions.configs["min.insync.replicas"] == "1"


@pytest.mark.parametrize(
    ("name", "arguments", "code", "message"),
    [
        ("", {}, ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
        ("..", {}, ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '..' is not allowed"),
        ("known", {}, ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'known' already exists."),
        ("k.n", {}, ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'k.n' collides with existing topic: k_n"),
        (
            "a",
            {"partitions": 0},
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            "a",
            {"replication_factor": 0},
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            "a",
            {"replication_factor": 2},
            ErrorCode.INVALID_REPLICATION_FACTOR,
            (
                "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached "
                "because only 1 broker(s) are registered."
            ),
        ),
        (
            "a",
            {"assignments": [(0, [1]), (2, [1])]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            "a",
            {"partitions": 2_000_000_000},
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
    ],
)
def test_invalid_topics_are_refused_with_kafkas_errors(
    opened: Opened, name: str, arguments: dict[str, object], code: ErrorCode, message: str | None
) -> None:
    opened.store.create_topic("known")
    opened.store.create_topic("k_n")
    with pytest.raises(BrokerError) as error:
        opened.store.create_topic(name, **arguments)  # type: ignore[arg-type]
    assert error.value.code == code
    assert message is None or error.value.message == message


def test_the_cluster_metadata_topic_cannot_be_created_or_deleted(opened: Opened) -> None:
    with pytest.raises(BrokerError) as error:
        opened.store.create_topic(CLUSTER_METADATA)
    assert refusal_of(error) == (
        ErrorCode.INVALID_REQUEST,
        "Creation of internal topic __cluster_metadata is prohibited.",
    )
    for refused in (opened.store.ensure_topic, opened.store.delete_topic):
        with pytest.raises(BrokerError) as error:
            refused(CLUSTER_METADATA)
        assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deleted_topic_is_gone_with_its_logs(opened: Opened, tmp_path: Path) -> None:
    topic = opened.store.create_topic("a", configs={"retention.ms": "5"})
    opened.store.delete_topic("a")
    assert opened.changes[-1] == TopicDeleted(topic)
    assert opened.partitions.find("a", 0) is None
    assert opened.logs.get("a", 0) is None
    again = reopened(opened, tmp_path)
    assert "a" not in again.store.topics
    assert again.store.create_topic("a").configs == {}


def test_topic_deletion_is_refused_with_delete_topic_enable_false(tmp_path: Path) -> None:
    opened = Opened(tmp_path, delete_topic_enable=False)
    opened.store.create_topic("a")
    with pytest.raises(BrokerError) as error:
        opened.store.delete_topic("a")
    assert error.value.code == ErrorCode.TOPIC_DELETION_DISABLED


def test_partitions_can_be_added_to_a_topic(opened: Opened, tmp_path: Path) -> None:
    topic = opened.store.create_topic("a", partitions=1)
    opened.store.create_partitions("a", 3)
    assert opened.changes[-1] == PartitionsAdded(topic, 1)
    assert [partition.index for partition in topic.partitions] == [0, 1, 2]
    assert sorted(opened.partitions.of_topic("a")) == [0, 1, 2]
    assert len(reopened(opened, tmp_path).store.topics["a"].partitions) == 3


def test_a_smaller_partition_count_gets_invalid_partitions(opened: Opened) -> None:
    opened.store.create_topic("a", partitions=2)
    with pytest.raises(BrokerError) as error:
        opened.store.create_partitions("a", 1)
    assert refusal_of(error) == (
        ErrorCode.INVALID_PARTITIONS,
        "The topic a currently has 2 partition(s); 1 would not be an increase.",
    )


# --- what a crash leaves


def test_a_metadata_change_is_kept_after_a_crash(opened: Opened, tmp_path: Path) -> None:
    opened.store.create_topic("a")
    # A killed process also loses its lock; all other files are as after kill -9.
    for directory in opened.logs.directories:
        directory.unlock()
    assert "a" in Opened(tmp_path).store.topics


def test_missing_partition_directories_are_created_at_the_next_start(opened: Opened, tmp_path: Path) -> None:
    opened.store._tell = lambda changes: None  # type: ignore[method-assign]
    opened.store.create_topic("a", partitions=2)
    again = reopened(opened, tmp_path)
    assert sorted(again.partitions.of_topic("a")) == [0, 1]


def test_a_deletion_that_was_cut_short_is_finished(opened: Opened, tmp_path: Path) -> None:
    opened.store.create_topic("a", partitions=2)
    opened.store._tell = lambda changes: None  # type: ignore[method-assign]
    opened.store.delete_topic("a")
    again = reopened(opened, tmp_path)
    assert again.store.topics == {}
    assert again.logs.get("a", 0) is None


def test_the_metadata_log_stays_bounded(tmp_path: Path) -> None:
    opened = Opened(tmp_path, metadata_log_max_record_bytes_between_snapshots=5000)
    for number in range(200):
        opened.store.create_topic(f"t{number}")
        opened.store.delete_topic(f"t{number}")
    log = opened.logs.get(CLUSTER_METADATA, 0)
    assert log is not None
    assert log.size_bytes < 20_000
    opened.store.create_topic("last")
    again = reopened(opened, tmp_path)
    assert list(again.store.topics) == ["last"]


# --- adoption


def adopted_directory(tmp_path: Path) -> UUID:
    """Return a log directory with two partitions of a topic, whose metadata is missing."""
    first = Opened(tmp_path)
    topic_id = first.store.create_topic("copied", partitions=2).topic_id
    first.close()
    for path in (tmp_path / f"{CLUSTER_METADATA}-0").iterdir():
        path.unlink()
    (tmp_path / f"{CLUSTER_METADATA}-0").rmdir()
    return topic_id


def test_partition_directories_without_metadata_are_adopted_with_one_line_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = adopted_directory(tmp_path)
    with caplog.at_level(logging.INFO, logger="gregor.broker.metadata.adoption"):
        opened = Opened(tmp_path)
    assert opened.store.topics["copied"].topic_id == topic_id
    assert sorted(opened.partitions.of_topic("copied")) == [0, 1]
    adopted = [message for message in caplog.messages if message.startswith("adopted")]
    assert adopted == ["adopted copied-0, offsets 0 to 0", "adopted copied-1, offsets 0 to 0"]


def test_partitions_without_a_log_are_named_when_they_begin_empty(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Opened(tmp_path)
    first.store.create_topic("kept")
    first.store.create_topic("lost", partitions=2)
    assert "begin empty" not in caplog.text, "new topics have lost nothing"
    first.close()
    shutil.rmtree(tmp_path / "lost-0")
    shutil.rmtree(tmp_path / "lost-1")

    Opened(tmp_path).close()
    told = [message for message in caplog.messages if "begin empty" in message]
    assert [message.partition(". If")[0] for message in told] == [
        "2 partitions have no log in any of log.dirs and begin empty: lost-0, lost-1"
    ]

    caplog.clear()
    Opened(tmp_path)
    assert "begin empty" not in caplog.text


def test_topics_are_adopted_only_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    adopted_directory(tmp_path)
    Opened(tmp_path).close()
    caplog.clear()
    Opened(tmp_path)
    assert not [message for message in caplog.messages if message.startswith("adopted")]


def test_a_lost_metadata_log_gives_a_warning_once(
    opened: Opened, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened.store.create_topic("t")
    opened.close()
    shutil.rmtree(tmp_path / "__cluster_metadata-0")
    again = Opened(tmp_path)
    assert "t" in again.store.topics
    (line,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith("__cluster_metadata-0 is in none of log.dirs, and 1 partitions are")
    again.close()
    caplog.clear()
    Opened(tmp_path).close()
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_producer_ids_found_in_logs_are_not_allocated_again_without_the_metadata_log(
    opened: Opened, tmp_path: Path
) -> None:
    opened.store.create_topic("t")
    log = opened.logs.get("t", 0)
    assert log is not None
    for producer_id in (4711, 2**63 - 1):
        log.append(payload([b"x"], producer_id=producer_id, producer_epoch=0, base_sequence=0), leader_epoch=0)
    opened.close()
    shutil.rmtree(tmp_path / "__cluster_metadata-0")
    again = Opened(tmp_path)
    assert again.store.allocate_producer_ids(1000) == 4712
    again.close()


def test_a_lone_broker_flushes_each_metadata_change(opened: Opened) -> None:
    opened.store.create_topic("t")
    opened.store.allocate_producer_ids(1000)
    log = opened.logs.get("__cluster_metadata", 0)
    assert log is not None
    assert log.recovery_point == log.log_end_offset == opened.store.end_offset


# --- configurations, quotas and the rest


def test_a_changed_topic_configuration_reaches_its_logs(opened: Opened, tmp_path: Path) -> None:
    topic = opened.store.create_topic("a")
    opened.store.set_configs(ResourceType.TOPIC, "a", {"retention.ms": "7", "segment.bytes": "100"})
    opened.store.set_configs(ResourceType.TOPIC, "a", {"retention.ms": "8"})
    assert opened.changes[-1] == TopicConfigChanged(topic)
    assert topic.configs == {"retention.ms": "8"}
    assert opened.partitions.get("a", 0).log.config.retention_ms == 8
    assert reopened(opened, tmp_path).partitions.get("a", 0).log.config.retention_ms == 8


def test_a_changed_broker_configuration_reaches_every_log(opened: Opened, tmp_path: Path) -> None:
    opened.store.create_topic("a")
    opened.store.create_topic("b", configs={"max.message.bytes": "10"})
    opened.store.set_configs(ResourceType.BROKER, "", {"message.max.bytes": "20"})
    assert opened.changes[-1] == BrokerConfigChanged()
    assert opened.config.message_max_bytes == 20
    assert opened.partitions.get("a", 0).log.config.max_message_bytes == 20
    assert opened.partitions.get("b", 0).log.config.max_message_bytes == 10
    again = reopened(opened, tmp_path)
    assert again.config.message_max_bytes == 20
    again.store.set_configs(ResourceType.BROKER, "", {})
    assert again.partitions.get("a", 0).log.config.max_message_bytes == 1_048_588


def test_records_without_a_change_call_no_listener(opened: Opened) -> None:
    opened.store.create_topic("a", configs={"retention.ms": "5"})
    told, end = len(opened.changes), opened.store.end_offset
    opened.store.set_configs(ResourceType.TOPIC, "a", {"retention.ms": "5"})
    assert (len(opened.changes), opened.store.end_offset) == (told, end)


def test_quotas_are_kept_after_a_restart(opened: Opened, tmp_path: Path) -> None:
    entity = (("client-id", None), ("user", "bob"))
    opened.store.set_quotas([(entity, "producer_byte_rate", 100.0), (entity, "request_percentage", 5.0)])
    opened.store.set_quotas([(entity, "request_percentage", None)])
    assert opened.changes == [QuotasChanged(), QuotasChanged()]
    assert reopened(opened, tmp_path).store.state.quotas == {entity: {"producer_byte_rate": 100.0}}


def test_producer_ids_are_never_allocated_twice(opened: Opened, tmp_path: Path) -> None:
    assert opened.store.allocate_producer_ids(1000) == 0
    assert opened.store.allocate_producer_ids(1000) == 1000
    assert reopened(opened, tmp_path).store.allocate_producer_ids(10) == 2000


# --- the state as a function of records

NAMES = st.sampled_from(["a", "b", "c"])
ACTIONS = st.one_of(
    st.tuples(st.just("create"), NAMES, st.integers(1, 3)),
    st.tuples(st.just("delete"), NAMES, st.just(0)),
    st.tuples(st.just("grow"), NAMES, st.integers(1, 4)),
    st.tuples(st.just("configure"), NAMES, st.integers(1, 9)),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(actions=st.lists(ACTIONS, max_size=12))
def test_any_history_is_the_same_after_a_restart_and_after_a_snapshot(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, str, int]]
) -> None:
    directory = tmp_path_factory.mktemp("history")
    opened = Opened(directory)
    for verb, name, number in actions:
        try:
            if verb == "create":
                opened.store.create_topic(name, partitions=number)
            elif verb == "delete":
                opened.store.delete_topic(name)
            elif verb == "grow":
                opened.store.create_partitions(name, number)
            elif name in opened.store.topics:
                opened.store.set_configs(ResourceType.TOPIC, name, {"retention.ms": str(number)})
        except BrokerError:
            continue
    copy = ClusterState()
    for record in opened.store.state.records():
        copy.apply(record)
    again = reopened(opened, directory)
    assert again.store.topics == opened.store.topics == copy.topics
    again.close()


def test_acls_are_kept_after_a_restart_and_in_snapshots(opened: Opened, tmp_path: Path) -> None:
    kept, removed = (
        AccessControlEntryRecord(id=UUID(int=number), resource_type=2, resource_name="a", principal="User:al")
        for number in (1, 2)
    )
    opened.store.change_acls([kept, removed])
    opened.store.change_acls(
        [RemoveAccessControlEntryRecord(id=removed.id), RemoveAccessControlEntryRecord(id=UUID(int=9))]
    )
    assert opened.changes == [AclsChanged((kept, removed), ()), AclsChanged((), (removed,))]
    copy = ClusterState()
    for record in opened.store.state.records():
        copy.apply(record)
    again = reopened(opened, tmp_path)
    assert again.store.state.acls == copy.acls == {kept.id: kept}
    copy.apply(removed)
    assert [change.removed for change in differences(copy, again.store.state) if isinstance(change, AclsChanged)] == [
        (kept, removed)
    ], "a copy that was loaded from a snapshot has records of its own"
    again.close()


def test_a_partition_change_with_a_leader_increments_the_leader_epoch() -> None:
    state = ClusterState()
    topic = TopicState("a", UUID(int=7), [PartitionState(0, 1, 0, [1], [1])])
    for record in topic_records(topic):
        state.apply(record)
    state.apply(PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, leader=2, isr=[2], replicas=[1, 2]))
    assert state.topics["a"].partitions == [PartitionState(0, 2, 1, [1, 2], [2], partition_epoch=1)]
    state.apply(RemoveTopicRecord(topic_id=topic.topic_id))
    assert (state.topics, state.topics_by_id) == ({}, {})
