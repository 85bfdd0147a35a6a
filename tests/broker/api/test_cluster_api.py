"""The cluster and its replicas: brokers, voters, features, elections, reassignments, log directories."""

from typing import cast

import pytest

from gregor.broker.api.handlers.api_versions import handle_api_versions
from gregor.broker.api.handlers.cluster import (
    handle_describe_cluster,
    handle_describe_quorum,
    handle_unregister_broker,
    handle_update_features,
)
from gregor.broker.api.handlers.replicas import (
    handle_alter_partition_reassignments,
    handle_elect_leaders,
    handle_list_partition_reassignments,
)
from gregor.broker.api.handlers.topic_partitions import handle_describe_topic_partitions
from gregor.broker.api.handlers.voters import handle_add_raft_voter
from gregor.broker.metadata.features import UpgradeType
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.messages import alter_partition_reassignments as reassignments
from gregor.protocol.messages import describe_quorum, elect_leaders
from gregor.protocol.messages.add_raft_voter import AddRaftVoterRequest
from gregor.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from gregor.protocol.messages.describe_cluster import DescribeClusterRequest
from gregor.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from gregor.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from gregor.protocol.messages.unregister_broker import UnregisterBrokerRequest
from gregor.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.asking import DIALLED, Asking


async def test_describe_cluster_returns_this_broker(asking: Asking) -> None:
    response = await asking.ask(handle_describe_cluster, DescribeClusterRequest())
    assert [(b.broker_id, b.host, b.port) for b in response.brokers] == [(1, *DIALLED)]
    assert response.cluster_id == asking.broker.services.metadata.cluster_id


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
async def test_describe_cluster_refuses_endpoint_types_other_than_brokers(
    asking: Asking, endpoint_type: int, code: ErrorCode
) -> None:
    response = await asking.ask(handle_describe_cluster, DescribeClusterRequest(endpoint_type=endpoint_type))
    assert (response.error_code, response.brokers) == (code, [])


async def test_describe_quorum_returns_this_broker_as_the_only_voter(asking: Asking) -> None:
    wanted = [
        describe_quorum.TopicData(topic_name=name, partitions=[describe_quorum.PartitionData(partition_index=0)])
        for name in ("__cluster_metadata", "other")
    ]
    request = describe_quorum.DescribeQuorumRequest(topics=wanted)
    ours, other = [topic.partitions[0] for topic in (await asking.ask(handle_describe_quorum, request)).topics]
    assert [voter.replica_id for voter in ours.current_voters] == [1]
    assert ours.high_watermark == asking.broker.services.metadata.end_offset > 0
    assert other.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_add_raft_voter_refuses_another_cluster_id(asking: Asking) -> None:
    response = await asking.ask(handle_add_raft_voter, AddRaftVoterRequest(cluster_id="other"))
    assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize(
    ("feature", "level", "kind", "code"),
    [
        ("metadata.version", 21, 1, ErrorCode.NONE),
        ("metadata.version", 20, 2, ErrorCode.NONE),
        ("metadata.version", 17, 3, ErrorCode.NONE),
        ("metadata.version", 16, 2, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 16, 3, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 3, 3, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 20, 1, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 22, 1, ErrorCode.INVALID_UPDATE_VERSION),
        ("no.such", 1, 1, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 20, 9, ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
async def test_update_features_validates_the_feature_level_and_upgrade_type(
    asking: Asking, feature: str, level: int, kind: int, code: ErrorCode
) -> None:
    update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
    response = await asking.ask(handle_update_features, UpdateFeaturesRequest(feature_updates=[update]))
    assert [result.error_code for result in response.results] == [code]
    expected = level if code is ErrorCode.NONE else 21
    assert asking.broker.services.metadata.state.features["metadata.version"] == expected


@pytest.mark.parametrize(("level", "offered"), [(0, (11, 4, 4)), (1, (11, 4, 4)), (2, (12, 5, 5))])
async def test_transactions_v2_are_offered_where_they_are_switched_on(
    asking: Asking, level: int, offered: tuple[int, int, int]
) -> None:
    """KIP-890; back at level 0 all is as in Kafka 3.9, which ApiVersions says as well."""

    async def versions() -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name="tester", client_software_version="1.0")
        return cast(ApiVersionsResponse, await asking.ask(handle_api_versions, request))

    before = await versions()
    for wanted, kind in ((level, UpgradeType.UPGRADE), (0, UpgradeType.SAFE_DOWNGRADE)):
        update = FeatureUpdateKey(feature="transaction.version", max_version_level=wanted, upgrade_type=kind)
        await asking.ask(handle_update_features, UpdateFeaturesRequest(feature_updates=[update]))
        if wanted == level:
            during = {key.api_key: key.max_version for key in (await versions()).api_keys}
    apis = (ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT)
    assert tuple(during[api] for api in apis) == offered
    after = await versions()
    assert after.api_keys == before.api_keys
    assert after.supported_features == before.supported_features


async def test_unregister_broker_refuses_an_unregistered_broker_id(asking: Asking) -> None:
    with pytest.raises(BrokerError) as refusal:
        await asking.ask(handle_unregister_broker, UnregisterBrokerRequest(broker_id=7))
    assert refusal.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


async def elected(asking: Asking, topic: str, index: int) -> ErrorCode:
    wanted = [elect_leaders.TopicPartitions(topic=topic, partitions=[index])]
    request = elect_leaders.ElectLeadersRequest(topic_partitions=wanted)
    response = await asking.ask(handle_elect_leaders, request)
    return ErrorCode(response.replica_election_results[0].partition_result[0].error_code)


async def test_elect_leaders_is_not_needed_for_a_partition_with_one_replica(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("a")
    assert await elected(asking, "a", 0) == ErrorCode.ELECTION_NOT_NEEDED
    assert await elected(asking, "a", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await elected(asking, "none", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def reassigned(asking: Asking, topic: str, replicas: list[int] | None) -> ErrorCode:
    partition = reassignments.ReassignablePartition(partition_index=0, replicas=replicas)
    request = reassignments.AlterPartitionReassignmentsRequest(
        topics=[reassignments.ReassignableTopic(name=topic, partitions=[partition])]
    )
    response = await asking.ask(handle_alter_partition_reassignments, request)
    return ErrorCode(response.responses[0].partitions[0].error_code)


async def test_alter_partition_reassignments_accepts_only_the_present_replica(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("a")
    assert await reassigned(asking, "a", [1]) == ErrorCode.NONE
    assert await reassigned(asking, "a", None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert await reassigned(asking, "none", [1]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for replicas in ([], [1, 1], [78]):
        assert await reassigned(asking, "a", replicas) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    response = await asking.ask(handle_list_partition_reassignments, ListPartitionReassignmentsRequest())
    assert response.topics == []


async def pages(asking: Asking, limit: int) -> list[list[tuple[str | None, list[int]]]]:
    """Return all pages of all topics, each as (name, partitions) pairs."""
    found: list[list[tuple[str | None, list[int]]]] = []
    cursor = None
    while True:
        request = DescribeTopicPartitionsRequest(response_partition_limit=limit, cursor=cursor)
        page = await asking.ask(handle_describe_topic_partitions, request)
        assert isinstance(page, DescribeTopicPartitionsResponse)
        found.append([(t.name, [p.partition_index for p in t.partitions]) for t in page.topics])
        if page.next_cursor is None:
            return found
        cursor = Cursor(topic_name=page.next_cursor.topic_name, partition_index=page.next_cursor.partition_index)


async def test_describe_topic_partitions_returns_topics_page_by_page(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("b", partitions=2)
    asking.broker.services.metadata.create_topic("a", partitions=3)
    assert await pages(asking, 10) == [[("a", [0, 1, 2]), ("b", [0, 1])]]
    assert await pages(asking, 3) == [[("a", [0, 1, 2])], [("b", [0, 1])]]
    assert await pages(asking, 2) == [[("a", [0, 1])], [("a", [2]), ("b", [0])], [("b", [1])]]
    assert await pages(asking, 0) == [[("a", [0])], [("a", [1])], [("a", [2])], [("b", [0])], [("b", [1])]]


async def test_describe_topic_partitions_refuses_invalid_cursors(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("a")
    for cursor in (Cursor(topic_name="s"), Cursor(topic_name="a", partition_index=-1)):
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a")], cursor=cursor)
        response = await asking.ask(handle_describe_topic_partitions, request)
        assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]
