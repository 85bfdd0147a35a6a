"""CreateTopics, CreatePartitions, DeleteTopics: each topic for itself, errors as Kafka gives them."""

from uuid import uuid4

from gregor.broker.api.handlers.topics import handle_create_partitions, handle_create_topics, handle_delete_topics
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from gregor.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from gregor.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.asking import Asking


def topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


async def create(asking: Asking, *topics: CreatableTopic, validate_only: bool = False) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    results: list[CreatableTopicResult] = (await asking.ask(handle_create_topics, request)).topics
    return results


async def test_a_topic_is_made_and_described(asking: Asking) -> None:
    (result,) = await create(asking, topic("a", 3, retention_ms="5"))
    made = asking.broker.services.metadata.topics["a"]
    assert (result.error_code, result.error_message, result.topic_id) == (ErrorCode.NONE, None, made.topic_id)
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    configs = {config.name: (config.value, config.config_source) for config in result.configs or []}
    assert len(configs) == 37
    assert configs["retention.ms"] == ("5", 1)
    assert configs["segment.bytes"] == ("1073741824", 5)


async def test_an_invalid_topic_does_not_stop_the_creation_of_the_others(asking: Asking) -> None:
    results = await create(asking, topic("good"), topic("b ad"))
    assert [(r.name, r.error_code) for r in results] == [
        ("good", ErrorCode.NONE),
        ("b ad", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


async def test_a_topic_named_twice_is_not_made(asking: Asking) -> None:
    (result,) = await create(asking, topic("a"), topic("a"))
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    assert asking.broker.services.metadata.topics == {}


async def test_a_null_value_is_refused(asking: Asking) -> None:
    (result,) = await create(asking, topic("a", retention_ms=None))
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert result.error_message == "Null value not supported for topic configs: retention.ms"


async def test_a_name_is_judged_before_the_configuration(asking: Asking) -> None:
    await create(asking, topic("a"))
    results = await create(asking, topic("a", retention_ms=None), topic("(", retention_ms=None))
    assert [result.error_code for result in results] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


async def test_create_topics_refuses_an_assignment_together_with_num_partitions(asking: Asking) -> None:
    assigned = topic("a", 1, -1)
    assigned.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    (result,) = await create(asking, assigned)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert (result.num_partitions, result.configs) == (-1, [])


async def test_partitions_can_be_assigned(asking: Asking) -> None:
    assigned = topic("a", -1, -1)
    assigned.assignments = [CreatableReplicaAssignment(partition_index=i, broker_ids=[1]) for i in (1, 0)]
    (result,) = await create(asking, assigned)
    assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 2)


async def test_create_topics_with_validate_only_creates_nothing(asking: Asking) -> None:
    (result,) = await create(asking, topic("a", 2), validate_only=True)
    assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 2)
    assert asking.broker.services.metadata.topics == {}


async def grow(asking: Asking, name: str, count: int, assignments: list[list[int]] | None = None) -> ErrorCode:
    assigned = None
    if assignments is not None:
        assigned = [CreatePartitionsAssignment(broker_ids=replicas) for replicas in assignments]
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=assigned)
    response = await asking.ask(handle_create_partitions, CreatePartitionsRequest(topics=[wanted]))
    return ErrorCode(response.results[0].error_code)


async def test_partitions_can_be_added_but_not_taken_away(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("a", partitions=2)
    assert await grow(asking, "a", 3) == ErrorCode.NONE
    assert await grow(asking, "a", 4, [[1]]) == ErrorCode.NONE
    assert len(asking.broker.services.partitions.of_topic("a")) == 4
    for count in (4, 2, 0, -1):
        assert await grow(asking, "a", count) == ErrorCode.INVALID_PARTITIONS
    misplaced: list[list[list[int]]] = [[], [[1], [1]], [[]], [[1, 1]], [[78]]]
    for assignments in misplaced:
        assert await grow(asking, "a", 5, assignments) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await grow(asking, "none", 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def delete(asking: Asking, *topics: DeleteTopicState, version: int = 6) -> list[tuple[str | None, ErrorCode]]:
    request = DeleteTopicsRequest(topics=list(topics), topic_names=[topic.name or "" for topic in topics])
    response = await asking.ask(handle_delete_topics, request, version)
    return [(result.name, ErrorCode(result.error_code)) for result in response.responses]


async def test_topics_are_deleted_by_name_in_every_version(asking: Asking) -> None:
    for version in range(7):
        asking.broker.services.metadata.create_topic("a")
        wanted = [DeleteTopicState(name="a"), DeleteTopicState(name="none")]
        assert sorted(await delete(asking, *wanted, version=version), key=str) == [
            ("a", ErrorCode.NONE),
            ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert asking.broker.services.metadata.topics == {}


async def test_topics_are_deleted_by_id(asking: Asking) -> None:
    topic_id = asking.broker.services.metadata.create_topic("a").topic_id
    assert await delete(asking, DeleteTopicState(topic_id=topic_id)) == [("a", ErrorCode.NONE)]
    assert await delete(asking, DeleteTopicState(topic_id=uuid4())) == [(None, ErrorCode.UNKNOWN_TOPIC_ID)]


async def test_delete_topics_refuses_duplicate_and_ambiguous_names_and_ids(asking: Asking) -> None:
    topic_id = asking.broker.services.metadata.create_topic("a").topic_id
    by_name, by_id = DeleteTopicState(name="a"), DeleteTopicState(topic_id=topic_id)
    refused = ErrorCode.INVALID_REQUEST
    assert await delete(asking, by_name, by_name) == [("a", refused)]
    assert await delete(asking, by_name, by_id) == [("a", refused)]
    assert await delete(asking, by_id, by_id) == [(None, refused)]
    assert await delete(asking, DeleteTopicState(name="a", topic_id=topic_id)) == [("a", refused)]
    assert await delete(asking, DeleteTopicState()) == [(None, refused)]
    assert "a" in asking.broker.services.metadata.topics
