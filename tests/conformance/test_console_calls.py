"""Requests of web consoles and exporters, each in the lowest and the highest version that we serve."""

from __future__ import annotations

import itertools
import struct
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from gregor.broker.api.table import APIS
from gregor.protocol.apis import ApiKey
from gregor.protocol.codec import decode, encode
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    join_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    sync_group,
)
from gregor.protocol.messages.api_versions import ApiVersionsRequest
from gregor.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from gregor.protocol.messages.group_metadata_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from gregor.protocol.records import v2
from gregor.protocol.records.batches import Record, iter_batches, iter_records
from gregor.protocol.schema import Struct
from tests.broker_process import BrokerProcess
from tests.wire import Wire

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_ID = 1
RECORD_COUNT = 5
COMMITTED_OFFSET = 3
LATEST = -1
TIMEOUT_MS = 5000
NUMBERS = itertools.count()


@dataclass
class Scene:
    """A cluster with a topic of two partitions, records in the first of them, and a group that reads the topic."""

    wire: Wire
    topic: str
    group: str

    def ask(self, key: ApiKey, version: int, request: object, *, fine: tuple[ErrorCode, ...] = ()) -> Any:
        """Return the answer, in which no part has another error than those in `fine`."""
        answer = self.wire.ask(key, version, request)
        errors = {ErrorCode(code) for code in error_codes(answer)} - {ErrorCode.NONE, *fine}
        assert not errors, answer
        return answer

    def topic_id(self) -> uuid.UUID:
        """Return the id that the broker gave to the topic."""
        topics = [metadata.MetadataRequestTopic(name=self.topic)]
        found: uuid.UUID = self.ask(ApiKey.METADATA, 12, metadata.MetadataRequest(topics=topics)).topics[0].topic_id
        return found


def error_codes(part: object) -> Iterator[int]:
    """Yield every `error_code` anywhere in an answer."""
    if isinstance(part, list):
        for element in part:
            yield from error_codes(element)
    elif isinstance(part, Struct):
        for name in type(part).FIELD_DEFAULTS:
            value = getattr(part, name)
            if name == "error_code":
                yield value
            else:
                yield from error_codes(value)


@pytest.fixture
def scene(broker_process: BrokerProcess) -> Iterator[Scene]:
    """Provide a scene with names of its own for each test, since consoles also alter and delete."""
    number = next(NUMBERS)
    with Wire(broker_process.address, client_id="console") as wire:
        scene = Scene(wire, f"topic-{number}", f"group-{number}")
        topic = create_topics.CreatableTopic(name=scene.topic, num_partitions=2, replication_factor=1)
        scene.ask(ApiKey.CREATE_TOPICS, 4, create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
        records = [Record(offset=offset, timestamp=0, key=None, value=b"value") for offset in range(RECORD_COUNT)]
        partition = produce.PartitionProduceData(index=0, records=v2.build_batch(records))
        data = produce.TopicProduceData(name=scene.topic, partition_data=[partition])
        scene.ask(ApiKey.PRODUCE, 9, produce.ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data]))
        find_group_coordinator(scene, 3)
        commit(scene, version=8)
        yield scene


def commit(scene: Scene, *, version: int, generation: int = -1, member_id: str = "") -> None:
    """Commit an offset, as a member of the group or, by default, as a tool does while the group is empty."""
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=COMMITTED_OFFSET, committed_metadata="by hand"
    )
    request = offset_commit.OffsetCommitRequest(
        group_id=scene.group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[offset_commit.OffsetCommitRequestTopic(name=scene.topic, partitions=[partition])],
    )
    scene.ask(ApiKey.OFFSET_COMMIT, version, request)


def join(scene: Scene) -> str:
    """Become the group's only member, with the first partition assigned; return the member id."""
    subscription = struct.pack(">hi", 0, 1) + struct.pack(">h", len(scene.topic)) + scene.topic.encode() + b"\xff" * 4
    request = join_group.JoinGroupRequest(
        group_id=scene.group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )
    joined = scene.ask(ApiKey.JOIN_GROUP, 3, request)
    assigned = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic=scene.topic, partitions=[0])], user_data=None
    )
    assignment = sync_group.SyncGroupRequestAssignment(
        member_id=joined.member_id, assignment=b"\0\0" + encode(assigned, 0)
    )
    sync = sync_group.SyncGroupRequest(
        group_id=scene.group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[assignment],
    )
    scene.ask(ApiKey.SYNC_GROUP, 2, sync)
    commit(scene, version=5, generation=joined.generation_id, member_id=joined.member_id)
    return str(joined.member_id)


def negotiate(scene: Scene, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="console", client_software_version="1")
    answer = scene.ask(ApiKey.API_VERSIONS, version, request)
    ranges = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert ranges == {api.key: (api.min_version, api.max_version) for api in APIS.values() if api.is_advertised}
    if version >= 3:
        # kafbat UI takes the cluster's version from this answer, and offers few functions without it.
        assert "metadata.version" in {feature.name for feature in answer.finalized_features}


def describe_the_cluster(scene: Scene, version: int) -> None:
    answer = scene.ask(ApiKey.DESCRIBE_CLUSTER, version, describe_cluster.DescribeClusterRequest())
    assert [(node.broker_id, node.port) for node in answer.brokers] == [(BROKER_ID, scene.wire.socket.getpeername()[1])]
    assert answer.controller_id == BROKER_ID
    assert len(answer.cluster_id) == 22


def read_metadata(scene: Scene, version: int) -> None:
    answer = scene.ask(ApiKey.METADATA, version, metadata.MetadataRequest(topics=None if version else []))
    topic = next(topic for topic in answer.topics if topic.name == scene.topic)
    assert sorted(partition.partition_index for partition in topic.partitions) == [0, 1]
    assert {partition.leader_id for partition in topic.partitions} == {BROKER_ID}
    assert {tuple(partition.isr_nodes) for partition in topic.partitions} == {(BROKER_ID,)}


def describe_partitions(scene: Scene, version: int) -> None:
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=scene.topic)], response_partition_limit=1
    )
    answer = scene.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, version, request)
    assert [partition.partition_index for partition in answer.topics[0].partitions] == [0]
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == (scene.topic, 1)


def find_end_offset(scene: Scene, version: int) -> None:
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    topics = [list_offsets.ListOffsetsTopic(name=scene.topic, partitions=[partition])]
    answer = scene.ask(ApiKey.LIST_OFFSETS, version, list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics))
    found = answer.topics[0].partitions[0]
    assert (found.offset if version else found.old_style_offsets[0]) == RECORD_COUNT


def read_records(scene: Scene, version: int) -> None:
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = fetch.FetchTopic(topic=scene.topic, topic_id=scene.topic_id(), partitions=[partition])
    request = fetch.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic])
    answer = scene.ask(ApiKey.FETCH, version, request)
    batches = iter_batches(answer.responses[0].partitions[0].records)
    assert [record.value for batch in batches for record in iter_records(batch)] == [b"value"] * RECORD_COUNT


def find_group_coordinator(scene: Scene, version: int) -> None:
    request = find_coordinator.FindCoordinatorRequest(key=scene.group)
    if version >= 4:
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=[scene.group])
    # The first request creates the topic __consumer_offsets.
    not_yet = ErrorCode.COORDINATOR_NOT_AVAILABLE
    while not_yet in error_codes(answer := scene.ask(ApiKey.FIND_COORDINATOR, version, request, fine=(not_yet,))):
        pass
    assert (answer.coordinators[0] if version >= 4 else answer).node_id == BROKER_ID


def list_the_groups(scene: Scene, version: int) -> None:
    answer = scene.ask(ApiKey.LIST_GROUPS, version, list_groups.ListGroupsRequest())
    group = next(group for group in answer.groups if group.group_id == scene.group)
    assert (group.protocol_type, group.group_state) == ("", "Empty" if version >= 4 else "")


def describe_the_group(scene: Scene, version: int) -> None:
    member_id = join(scene)
    answer = scene.ask(ApiKey.DESCRIBE_GROUPS, version, describe_groups.DescribeGroupsRequest(groups=[scene.group]))
    (group,) = answer.groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "console", "/127.0.0.1")
    assignment = decode(ConsumerProtocolAssignment, member.member_assignment[2:], 0)
    assert [(topic.topic, topic.partitions) for topic in assignment.assigned_partitions] == [(scene.topic, [0])]


def fetch_committed_offsets(scene: Scene, version: int) -> None:
    if version >= 8:
        groups = [offset_fetch.OffsetFetchRequestGroup(group_id=scene.group, topics=None)]
        answer = scene.ask(ApiKey.OFFSET_FETCH, version, offset_fetch.OffsetFetchRequest(groups=groups))
        (topic,) = answer.groups[0].topics
    else:
        topics = [offset_fetch.OffsetFetchRequestTopic(name=scene.topic, partition_indexes=[0])]
        request = offset_fetch.OffsetFetchRequest(group_id=scene.group, topics=topics)
        (topic,) = scene.ask(ApiKey.OFFSET_FETCH, version, request).topics
    (partition,) = topic.partitions
    assert (partition.committed_offset, partition.metadata) == (COMMITTED_OFFSET, "by hand")


def forget_committed_offset(scene: Scene, version: int) -> None:
    partitions = [offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
    topics = [offset_delete.OffsetDeleteRequestTopic(name=scene.topic, partitions=partitions)]
    request = offset_delete.OffsetDeleteRequest(group_id=scene.group, topics=topics)
    answer = scene.ask(ApiKey.OFFSET_DELETE, version, request)
    assert [partition.partition_index for partition in answer.topics[0].partitions] == [0]
    assert scene.group not in {group.group_id for group in listed_groups(scene)}


def delete_the_group(scene: Scene, version: int) -> None:
    request = delete_groups.DeleteGroupsRequest(groups_names=[scene.group])
    answer = scene.ask(ApiKey.DELETE_GROUPS, version, request)
    assert [result.group_id for result in answer.results] == [scene.group]
    assert scene.group not in {group.group_id for group in listed_groups(scene)}


def listed_groups(scene: Scene) -> list[list_groups.ListedGroup]:
    groups: list[list_groups.ListedGroup] = scene.ask(ApiKey.LIST_GROUPS, 4, list_groups.ListGroupsRequest()).groups
    return groups


def create_a_topic(scene: Scene, version: int) -> None:
    config = create_topics.CreatableTopicConfig(name="cleanup.policy", value="compact")
    topic = create_topics.CreatableTopic(
        name=f"{scene.topic}-new", num_partitions=3, replication_factor=1, configs=[config]
    )
    request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    (created,) = scene.ask(ApiKey.CREATE_TOPICS, version, request).topics
    assert created.name == topic.name
    if version >= 5:
        assert created.num_partitions == 3
        assert ("cleanup.policy", "compact") in {(config.name, config.value) for config in created.configs}


def add_partitions(scene: Scene, version: int) -> None:
    topics = [create_partitions.CreatePartitionsTopic(name=scene.topic, count=4, assignments=None)]
    request = create_partitions.CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
    scene.ask(ApiKey.CREATE_PARTITIONS, version, request)
    assert partition_count(scene) == 4


def partition_count(scene: Scene) -> int:
    topics = [metadata.MetadataRequestTopic(name=scene.topic)]
    return len(scene.ask(ApiKey.METADATA, 9, metadata.MetadataRequest(topics=topics)).topics[0].partitions)


def delete_the_topic(scene: Scene, version: int) -> None:
    request = delete_topics.DeleteTopicsRequest(topic_names=[scene.topic], timeout_ms=TIMEOUT_MS)
    if version >= 6:
        state = delete_topics.DeleteTopicState(name=scene.topic)
        request = delete_topics.DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS)
    (deleted,) = scene.ask(ApiKey.DELETE_TOPICS, version, request).responses
    assert deleted.name == scene.topic
    everything = scene.ask(ApiKey.METADATA, 9, metadata.MetadataRequest(topics=None))
    assert scene.topic not in {topic.name for topic in everything.topics}


def delete_the_first_records(scene: Scene, version: int) -> None:
    partitions = [delete_records.DeleteRecordsPartition(partition_index=0, offset=2)]
    topics = [delete_records.DeleteRecordsTopic(name=scene.topic, partitions=partitions)]
    request = delete_records.DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
    answer = scene.ask(ApiKey.DELETE_RECORDS, version, request)
    assert answer.topics[0].partitions[0].low_watermark == 2


def described_configs(scene: Scene, version: int, kind: int, name: str) -> dict[str, str | None]:
    resource = describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = describe_configs.DescribeConfigsRequest(resources=[resource], include_synonyms=version >= 1)
    (result,) = scene.ask(ApiKey.DESCRIBE_CONFIGS, version, request).results
    return {config.name: config.value for config in result.configs}


def describe_settings(scene: Scene, version: int) -> None:
    of_broker = described_configs(scene, version, BROKER_RESOURCE, str(BROKER_ID))
    # kafbat UI chooses its functions by these two keys.
    assert of_broker["delete.topic.enable"] == "true"
    assert str(of_broker["inter.broker.protocol.version"]).startswith("3.9")
    of_topic = described_configs(scene, version, TOPIC_RESOURCE, scene.topic)
    assert (of_topic["cleanup.policy"], of_topic["segment.ms"]) == ("delete", "604800000")


def alter_settings(scene: Scene, version: int) -> None:
    config = alter_configs.AlterableConfig(name="retention.ms", value="1000")
    resource = alter_configs.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=scene.topic, configs=[config]
    )
    scene.ask(ApiKey.ALTER_CONFIGS, version, alter_configs.AlterConfigsRequest(resources=[resource]))
    assert described_configs(scene, 1, TOPIC_RESOURCE, scene.topic)["retention.ms"] == "1000"


def alter_one_setting(scene: Scene, version: int) -> None:
    append = 2
    config = incremental_alter_configs.AlterableConfig(name="cleanup.policy", config_operation=append, value="compact")
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=scene.topic, configs=[config]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    scene.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, request)
    assert described_configs(scene, 1, TOPIC_RESOURCE, scene.topic)["cleanup.policy"] == "delete,compact"


def describe_disks(scene: Scene, version: int) -> None:
    topics = [describe_log_dirs.DescribableLogDirTopic(topic=scene.topic, partitions=[0, 1])]
    answer = scene.ask(ApiKey.DESCRIBE_LOG_DIRS, version, describe_log_dirs.DescribeLogDirsRequest(topics=topics))
    (directory,) = answer.results
    sizes = {partition.partition_index: partition.partition_size for partition in directory.topics[0].partitions}
    assert sizes[0] > sizes[1] == 0
    if version >= 4:
        assert 0 < directory.usable_bytes <= directory.total_bytes


def probe_acls(scene: Scene, version: int) -> None:
    match_any = 1
    request = describe_acls.DescribeAclsRequest(
        resource_type_filter=match_any, operation=match_any, permission_type=match_any
    )
    if version >= 1:
        request.pattern_type_filter = match_any
    request.resource_name_filter = request.principal_filter = request.host_filter = None
    answer = scene.ask(ApiKey.DESCRIBE_ACLS, version, request, fine=(ErrorCode.SECURITY_DISABLED,))
    assert answer.error_code == ErrorCode.SECURITY_DISABLED


def describe_quotas(scene: Scene, version: int) -> None:
    request = describe_client_quotas.DescribeClientQuotasRequest()
    assert scene.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, request).entries == []


def describe_idempotent_producers(scene: Scene, version: int) -> None:
    topics = [describe_producers.TopicRequest(name=scene.topic, partition_indexes=[0])]
    request = describe_producers.DescribeProducersRequest(topics=topics)
    (partition,) = scene.ask(ApiKey.DESCRIBE_PRODUCERS, version, request).topics[0].partitions
    assert partition.active_producers == []


def describe_controllers(scene: Scene, version: int) -> None:
    topic = describe_quorum.TopicData(
        topic_name="__cluster_metadata", partitions=[describe_quorum.PartitionData(partition_index=0)]
    )
    answer = scene.ask(ApiKey.DESCRIBE_QUORUM, version, describe_quorum.DescribeQuorumRequest(topics=[topic]))
    (partition,) = answer.topics[0].partitions
    assert partition.leader_id == BROKER_ID
    assert [voter.replica_id for voter in partition.current_voters] == [BROKER_ID]
    assert partition.high_watermark > 0


def reassign_to_where_it_is(scene: Scene, version: int) -> None:
    partition = alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=[BROKER_ID])
    topic = alter_partition_reassignments.ReassignableTopic(name=scene.topic, partitions=[partition])
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    answer = scene.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, request)
    assert [topic.name for topic in answer.responses] == [scene.topic]


def move_to_the_same_disk(scene: Scene, version: int) -> None:
    disks = scene.ask(ApiKey.DESCRIBE_LOG_DIRS, 3, describe_log_dirs.DescribeLogDirsRequest(topics=None))
    topics = [alter_replica_log_dirs.AlterReplicaLogDirTopic(name=scene.topic, partitions=[0])]
    moved = alter_replica_log_dirs.AlterReplicaLogDir(path=disks.results[0].log_dir, topics=topics)
    request = alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[moved])
    answer = scene.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, version, request)
    assert [topic.topic_name for topic in answer.results] == [scene.topic]


CALLS: dict[ApiKey, Callable[[Scene, int], None]] = {
    ApiKey.ALTER_CONFIGS: alter_settings,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: reassign_to_where_it_is,
    ApiKey.ALTER_REPLICA_LOG_DIRS: move_to_the_same_disk,
    ApiKey.API_VERSIONS: negotiate,
    ApiKey.CREATE_PARTITIONS: add_partitions,
    ApiKey.CREATE_TOPICS: create_a_topic,
    ApiKey.DELETE_GROUPS: delete_the_group,
    ApiKey.DELETE_RECORDS: delete_the_first_records,
    ApiKey.DELETE_TOPICS: delete_the_topic,
    ApiKey.DESCRIBE_ACLS: probe_acls,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: describe_quotas,
    ApiKey.DESCRIBE_CLUSTER: describe_the_cluster,
    ApiKey.DESCRIBE_CONFIGS: describe_settings,
    ApiKey.DESCRIBE_GROUPS: describe_the_group,
    ApiKey.DESCRIBE_LOG_DIRS: describe_disks,
    ApiKey.DESCRIBE_PRODUCERS: describe_idempotent_producers,
    ApiKey.DESCRIBE_QUORUM: describe_controllers,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_partitions,
    ApiKey.FETCH: read_records,
    ApiKey.FIND_COORDINATOR: find_group_coordinator,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: alter_one_setting,
    ApiKey.LIST_GROUPS: list_the_groups,
    ApiKey.LIST_OFFSETS: find_end_offset,
    ApiKey.METADATA: read_metadata,
    ApiKey.OFFSET_DELETE: forget_committed_offset,
    ApiKey.OFFSET_FETCH: fetch_committed_offsets,
}

CONSOLES = {
    "kafbat UI": "API_VERSIONS DESCRIBE_CLUSTER DESCRIBE_CONFIGS METADATA DESCRIBE_TOPIC_PARTITIONS LIST_OFFSETS FETCH "
    "DESCRIBE_LOG_DIRS LIST_GROUPS FIND_COORDINATOR DESCRIBE_GROUPS OFFSET_FETCH OFFSET_DELETE DELETE_GROUPS "
    "CREATE_TOPICS CREATE_PARTITIONS DELETE_TOPICS DELETE_RECORDS INCREMENTAL_ALTER_CONFIGS DESCRIBE_ACLS "
    "DESCRIBE_CLIENT_QUOTAS DESCRIBE_PRODUCERS DESCRIBE_QUORUM ALTER_PARTITION_REASSIGNMENTS ALTER_REPLICA_LOG_DIRS",
    "AKHQ": "API_VERSIONS DESCRIBE_CLUSTER METADATA LIST_OFFSETS FETCH LIST_GROUPS FIND_COORDINATOR DESCRIBE_GROUPS "
    "OFFSET_FETCH DESCRIBE_LOG_DIRS DESCRIBE_CONFIGS ALTER_CONFIGS CREATE_TOPICS CREATE_PARTITIONS DELETE_TOPICS "
    "DELETE_RECORDS DELETE_GROUPS DESCRIBE_ACLS",
    "Kafdrop": "API_VERSIONS DESCRIBE_CLUSTER METADATA LIST_OFFSETS FETCH DESCRIBE_CONFIGS LIST_GROUPS "
    "FIND_COORDINATOR OFFSET_FETCH DESCRIBE_ACLS CREATE_TOPICS DELETE_TOPICS",
    "KMinion": "API_VERSIONS METADATA LIST_OFFSETS FETCH DESCRIBE_CONFIGS DESCRIBE_LOG_DIRS LIST_GROUPS "
    "FIND_COORDINATOR DESCRIBE_GROUPS OFFSET_FETCH CREATE_TOPICS CREATE_PARTITIONS ALTER_PARTITION_REASSIGNMENTS "
    "DELETE_GROUPS",
    "kafka_exporter": "METADATA LIST_OFFSETS LIST_GROUPS FIND_COORDINATOR DESCRIBE_GROUPS OFFSET_FETCH",
    "Burrow": "METADATA LIST_OFFSETS FETCH",
}


def every_call() -> Iterator[Any]:
    """Yield the calls of each console, in the lowest and the highest version that we serve."""
    for console, names in CONSOLES.items():
        for key in map(ApiKey.__getitem__, names.split()):
            for version in sorted({APIS[key].min_version, APIS[key].max_version}):
                yield pytest.param(key, version, id=f"{console}-{key.name}-v{version}")


@pytest.mark.parametrize(("key", "version"), list(every_call()))
def test_each_request_of_a_console_is_answered(scene: Scene, key: ApiKey, version: int) -> None:
    CALLS[key](scene, version)


def test_burrow_can_read_the_offsets_topic(scene: Scene) -> None:
    member_id = join(scene)
    offsets, groups = offsets_topic(scene)
    committed = offsets[scene.group, scene.topic, 0]
    assert (committed.offset, committed.metadata) == (COMMITTED_OFFSET, "by hand")
    group = groups[scene.group]
    assert (group.protocol_type, group.protocol, group.leader) == ("consumer", "range", member_id)
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "console", "/127.0.0.1")
    assignment = decode(ConsumerProtocolAssignment, member.assignment[2:], 0)
    assert assignment.assigned_partitions[0].partitions == [0]


def offsets_topic(scene: Scene) -> tuple[dict[tuple[str, str, int], OffsetCommitValue], dict[str, GroupMetadataValue]]:
    """Read `__consumer_offsets` to its end; return commits by group, topic, partition, and groups by name."""
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
    request = fetch.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 24)
    request.topics = [fetch.FetchTopic(topic="__consumer_offsets", partitions=[partition])]
    data = scene.ask(ApiKey.FETCH, 4, request).responses[0].partitions[0].records
    offsets: dict[tuple[str, str, int], OffsetCommitValue] = {}
    groups: dict[str, GroupMetadataValue] = {}
    for record in itertools.chain.from_iterable(map(iter_records, iter_batches(data))):
        assert record.key is not None
        (kind,) = struct.unpack_from(">h", record.key)
        if kind in (0, 1):
            key = decode(OffsetCommitKey, record.key[2:], kind)
            # Burrow knows versions 0, 1 and 3 of a commit, and 0 to 3 of a group.
            put(offsets, (key.group, key.topic, key.partition), record.value, OffsetCommitValue, {0, 1, 3})
        elif kind == 2:
            name = decode(GroupMetadataKey, record.key[2:], kind).group
            put(groups, name, record.value, GroupMetadataValue, {0, 1, 2, 3})
    return offsets, groups


def put(table: dict[Any, Any], key: object, value: Any, kind: type[Any], readable_versions: set[int]) -> None:
    """Apply one record; a record without a value removes the key."""
    if value is None:
        table.pop(key, None)
        return
    (version,) = struct.unpack_from(">h", value)
    assert version in readable_versions
    table[key] = decode(kind, value[2:], version)
