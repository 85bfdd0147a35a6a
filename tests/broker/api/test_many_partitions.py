"""Requests about thousands of partitions: Kafka's limits, and other clients that are served meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from gregor.broker.api.handlers.configs import handle_incremental_alter_configs
from gregor.broker.api.handlers.metadata import handle_metadata
from gregor.broker.api.handlers.replicas import handle_elect_leaders
from gregor.broker.api.handlers.topics import handle_create_partitions, handle_create_topics, handle_delete_topics
from gregor.broker.metadata.state import PartitionState, ResourceType
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from gregor.protocol.messages.elect_leaders import ElectLeadersRequest
from gregor.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from gregor.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from gregor.storage.log_manager import LogManager
from tests.asking import Asking

TOO_MANY = (ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
TOO_LARGE = (ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


async def create(asking: Asking, *topics: tuple[str, int], validate_only: bool = False) -> list[tuple[int, str | None]]:
    wanted = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in topics]
    request = CreateTopicsRequest(topics=wanted, validate_only=validate_only, timeout_ms=60_000)
    return [(r.error_code, r.error_message) for r in (await asking.ask(handle_create_topics, request)).topics]


@pytest.mark.parametrize("validate_only", [False, True])
async def test_no_more_than_ten_thousand_partitions_are_created_at_once(asking: Asking, validate_only: bool) -> None:
    """Each answer is that of Kafka 3.9.1."""
    assert await create(asking, ("a", 10_001), validate_only=validate_only) == [TOO_MANY]
    assert await create(asking, ("a", 6000), ("b", 6000), validate_only=validate_only) == [TOO_MANY] * 2
    assert await create(asking, ("bad name", 10_001), ("b", -1), ("b", -1)) == [TOO_MANY] * 3
    assert await create(asking, ("a", 10_000), validate_only=validate_only) == [TOO_LARGE], (
        "the topic itself is counted, too"
    )
    topics = [(f"t{number}", 1) for number in range(5001)]
    assert await create(asking, *topics, validate_only=validate_only) == [TOO_LARGE] * 5001
    assert not asking.broker.services.metadata.topics


@pytest.mark.parametrize("properties", [{"num.partitions": "10001"}])
async def test_a_topic_with_too_many_default_partitions_is_not_created_automatically(
    asking: Asking, properties: Any
) -> None:
    response = await asking.ask(handle_metadata, MetadataRequest(topics=[MetadataRequestTopic(name="a")]))
    assert response.topics[0].error_code == ErrorCode.POLICY_VIOLATION
    assert await create(asking, ("b", -1)) == [TOO_MANY]


async def test_no_more_than_ten_thousand_partitions_are_added_at_once(asking: Asking) -> None:
    await create(asking, ("a", 1), ("b", 1))

    async def grow(*counts: tuple[str, int]) -> list[tuple[int, str | None]]:
        wanted = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts]
        request = CreatePartitionsRequest(topics=wanted, validate_only=True)
        response = await asking.ask(handle_create_partitions, request)
        return [(result.error_code, result.error_message) for result in response.results]

    assert await grow(("a", 10_001)) == [(0, None)]
    assert await grow(("a", 10_002)) == [TOO_LARGE]
    assert await grow(("a", 2**31 - 1)) == [TOO_LARGE]
    assert await grow(("a", 6000), ("b", 6000)) == [(0, None), TOO_LARGE]


async def test_no_more_than_ten_thousand_settings_are_changed_at_once(asking: Asking) -> None:
    configs = [AlterableConfig(name=f"x{number}", value="1", config_operation=0) for number in range(10_001)]
    resource = AlterConfigsResource(resource_type=ResourceType.BROKER, resource_name="", configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    response = await asking.ask(handle_incremental_alter_configs, request)
    assert (response.responses[0].error_code, response.responses[0].error_message) == TOO_LARGE


async def turns_during(work: Callable[[], Awaitable[Any]]) -> int:
    """Count the turns of the event loop that other tasks get."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await work()
        nursery.cancel_scope.cancel()
    return turns


async def test_other_requests_are_served_while_a_topic_with_many_partitions_is_created(asking: Asking) -> None:
    turns = await turns_during(lambda: create(asking, ("big", 400)))
    assert turns > 10
    assert len(asking.broker.services.partitions) == 400, "the answer is sent once all partitions exist"


async def test_a_topic_can_be_deleted_and_recreated_while_its_partitions_are_created(asking: Asking) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(create, asking, ("big", 400))
        while not asking.broker.services.partitions:
            await trio.lowlevel.checkpoint()
        assert len(asking.broker.services.partitions) < 400
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="big")])
        assert not (await asking.ask(handle_delete_topics, request)).responses[0].error_code
        nursery.start_soon(create, asking, ("big", 300))
    assert len(asking.broker.services.partitions) == 300
    topic_ids = {partition.log.topic_id for partition in asking.broker.services.partitions}
    assert topic_ids == {asking.broker.services.metadata.topics["big"].topic_id}


async def test_a_log_whose_creation_failed_on_a_full_disk_is_created_later(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_full = True
    make = LogManager.create

    def create_log(self: LogManager, topic: str, partition: int, *arguments: Any) -> Any:
        if is_full and partition >= 200:
            raise OSError(28, "No space left on device")
        return make(self, topic, partition, *arguments)

    monkeypatch.setattr(LogManager, "create", create_log)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(create, asking, ("big", 250))
        while len(asking.broker.services.partitions) < 200:
            await trio.lowlevel.checkpoint()
        is_full = False
    assert len(asking.broker.services.partitions) == 250


async def test_other_requests_are_served_while_many_partitions_are_described_or_elected(asking: Asking) -> None:
    services = asking.broker.services
    for number in range(60):
        topic = services.metadata.create_topic(f"t{number}")
        topic.partitions += [PartitionState(index, 1, 0, [1], [1]) for index in range(1, 1000)]
    everything = MetadataRequest(topics=None)
    assert await turns_during(lambda: asking.ask(handle_metadata, everything)) > 2
    elections = ElectLeadersRequest(topic_partitions=None)
    assert await turns_during(lambda: asking.ask(handle_elect_leaders, elections)) > 2
