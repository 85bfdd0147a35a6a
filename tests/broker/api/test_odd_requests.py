"""Requests that no client should send, answered as Apache Kafka 3.9.1 answered the same bytes."""

from __future__ import annotations

import pytest

from gregor.broker.api.handlers.configs import (
    handle_alter_configs,
    handle_describe_configs,
    handle_incremental_alter_configs,
)
from gregor.broker.api.handlers.list_offsets import handle_list_offsets
from gregor.broker.api.handlers.offset_for_leader_epoch import handle_offset_for_leader_epoch
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import alter_configs, describe_configs, incremental_alter_configs
from gregor.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gregor.protocol.messages.list_offsets import ListOffsetsPartitionResponse as OffsetFound
from gregor.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.asking import Asking

CONSUMER = -1


async def listed(
    asking: Asking, version: int, timestamp: int, *, epoch: int = -1, isolation: int = 0, count: int = 1
) -> OffsetFound:
    partition = ListOffsetsPartition(
        partition_index=0, timestamp=timestamp, current_leader_epoch=epoch, max_num_offsets=count
    )
    request = ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name="empty", partitions=[partition])],
    )
    found: OffsetFound = (await asking.ask(handle_list_offsets, request, version)).topics[0].partitions[0]
    return found


@pytest.fixture
async def kafka(asking: Asking) -> Asking:
    """Return a client of a broker with an empty topic."""
    asking.broker.services.metadata.create_topic("empty")
    return asking


@pytest.mark.parametrize("timestamp", [-3, -4, -5, -6, -7, -100])
async def test_list_offsets_v0_refuses_special_timestamps(kafka: Asking, timestamp: int) -> None:
    assert (await listed(kafka, 0, timestamp)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_list_offsets_v0_refuses_a_negative_max_num_offsets(kafka: Asking) -> None:
    assert (await listed(kafka, 0, -1, count=-1)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (await listed(kafka, 0, -1, count=0)).old_style_offsets == []


@pytest.mark.parametrize("version", [4, 5, 7, 9])
@pytest.mark.parametrize("timestamp", [-2, -1])
async def test_list_offsets_of_an_empty_log_returns_the_leader_epoch(
    kafka: Asking, version: int, timestamp: int
) -> None:
    found = await listed(kafka, version, timestamp)
    assert (found.error_code, found.offset, found.leader_epoch) == (0, 0, 0)


@pytest.mark.parametrize("isolation", [-1, 2, 7])
@pytest.mark.parametrize("timestamp", [-1, -3])
async def test_list_offsets_refuses_an_unknown_isolation_level(kafka: Asking, isolation: int, timestamp: int) -> None:
    found = await listed(kafka, 7, timestamp, isolation=isolation)
    assert found.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.NONE),
        (0, ErrorCode.NONE),
        (-2, ErrorCode.FENCED_LEADER_EPOCH),
        (-5, ErrorCode.FENCED_LEADER_EPOCH),
        (1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_leader_epochs_below_minus_one_are_fenced(kafka: Asking, epoch: int, code: ErrorCode) -> None:
    assert (await listed(kafka, 7, -1, epoch=epoch)).error_code == code
    assert (await epoch_end(kafka, 0, current=epoch)).error_code == code


async def epoch_end(asking: Asking, epoch: int, *, current: int = -1) -> EpochEndOffset:
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(
        replica_id=CONSUMER, topics=[OffsetForLeaderTopic(topic="empty", partitions=[wanted])]
    )
    response = await asking.ask(handle_offset_for_leader_epoch, request)
    answer: EpochEndOffset = response.topics[0].partitions[0]
    return answer


@pytest.mark.parametrize(
    ("epoch", "answer"), [(-5, (-5, 0)), (-2, (-2, 0)), (-1, (-1, -1)), (0, (0, 0)), (1, (-1, -1)), (7, (-1, -1))]
)
async def test_offset_for_leader_epoch_of_an_empty_log_is_answered_as_in_kafka(
    kafka: Asking, epoch: int, answer: tuple[int, int]
) -> None:
    found = await epoch_end(kafka, epoch)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, *answer)


TOPIC, BROKER, LOGGER = 2, 4, 8


async def alteration_codes(asking: Asking, kind: int, name: str) -> set[int]:
    """Return the errors of all versions of both APIs."""
    codes = set()
    for version in (0, 1, 2):
        wanted = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
        request = alter_configs.AlterConfigsRequest(resources=[wanted], validate_only=True)
        if kind != LOGGER:
            codes.add((await asking.ask(handle_alter_configs, request, version)).responses[0].error_code)
    for version in (0, 1):
        changed = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
        changes = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[changed], validate_only=True)
        codes.add((await asking.ask(handle_incremental_alter_configs, changes, version)).responses[0].error_code)
    return codes


@pytest.mark.parametrize("name", ["a b", "x" * 250, ".", "..", "é", "x" * 32_767])
async def test_alter_configs_of_an_invalid_topic_name_is_invalid_topic_exception(asking: Asking, name: str) -> None:
    assert await alteration_codes(asking, TOPIC, name) == {ErrorCode.INVALID_TOPIC_EXCEPTION}


async def test_alter_configs_of_a_missing_topic_is_unknown_topic_or_partition(asking: Asking) -> None:
    assert await alteration_codes(asking, TOPIC, "nope") == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("1", ErrorCode.NONE),
        ("+1", ErrorCode.NONE),
        ("--1", ErrorCode.INVALID_REQUEST),
        ("²", ErrorCode.INVALID_REQUEST),
        ("1.5", ErrorCode.INVALID_REQUEST),
        ("99999999999", ErrorCode.INVALID_REQUEST),
        ("9" * 5000, ErrorCode.INVALID_REQUEST),
        ("7", ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("kind", [BROKER, LOGGER])
async def test_broker_ids_in_config_requests_are_parsed_as_java_parses_integers(
    asking: Asking, kind: int, name: str, code: ErrorCode
) -> None:
    assert await alteration_codes(asking, kind, name) == {code}
    wanted = describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name)
    request = describe_configs.DescribeConfigsRequest(resources=[wanted])
    assert (await asking.ask(handle_describe_configs, request)).results[0].error_code == code
