"""Translations of requests whose newer versions only have other fields."""

from __future__ import annotations

from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ...protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ...protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ...protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from .contract import Ask

DEFAULT_CONFIG = 5
"""The `config_source` of a value that nobody has set (Kafka: ConfigSource.DEFAULT_CONFIG)."""
NO_OFFSET = -1
NO_TIMESTAMP = -1


async def same_fields(request: Any, _version: int, ask: Ask) -> Any:
    """Send the same values in the newer version: fields that the client did not send have their defaults."""
    return await ask(request)


async def translate_offset_commit(request: OffsetCommitRequest, _version: int, ask: Ask) -> OffsetCommitResponse:
    """Commit to the group's coordinator, as from v2 on; 0.8 kept the offsets of v0 in ZooKeeper.

    The time stamps of v1 are left out: Kafka 4 keeps offsets for `offsets.retention.minutes` (KIP-211).
    """
    for topic in request.topics:
        for partition in topic.partitions:
            partition.commit_timestamp = NO_TIMESTAMP
    response: OffsetCommitResponse = await ask(request)
    return response


async def translate_offset_fetch(request: OffsetFetchRequest, version: int, ask: Ask) -> OffsetFetchResponse:
    """Fetch offsets from the coordinator; v0 reports a partition without one as an error (Kafka 0.8 to 2.x)."""
    response: OffsetFetchResponse = await ask(request)
    if version == 0:
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.committed_offset == NO_OFFSET and not partition.error_code:
                    partition.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return response


async def translate_describe_configs(
    request: DescribeConfigsRequest, _version: int, ask: Ask
) -> DescribeConfigsResponse:
    """Describe configurations; v0 says `is_default` where later versions name the source."""
    response: DescribeConfigsResponse = await ask(request)
    for result in response.results:
        for config in result.configs:
            config.is_default = config.config_source == DEFAULT_CONFIG
    return response


async def translate_join_group(request: JoinGroupRequest, version: int, ask: Ask) -> JoinGroupResponse:
    """Join a group; in v0 the session timeout is the rebalance timeout too (Kafka: JoinGroupRequest)."""
    if version == 0:
        request.rebalance_timeout_ms = request.session_timeout_ms
    response: JoinGroupResponse = await ask(request)
    return response
