"""The two requests of KIP-848 as they arrive: versions, the switch, and errors in the right fields."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import trio
from trio.testing import MockClock

from gregor.broker.api.contract import RequestContext
from gregor.broker.api.handlers.consumer_groups import handle_consumer_group_describe, handle_consumer_group_heartbeat
from gregor.broker.api.table import APIS
from gregor.broker.server.client_connection import ClientConnection
from gregor.broker.server.outcome import result_of
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from gregor.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

READ_DELETE_DESCRIBE = 0b1_0100_1000


def context(bench: Any, version: int = 0, *protocols: str) -> Any:
    config = SimpleNamespace(group_coordinator_rebalance_protocols=protocols or ("classic", "consumer"))
    services = SimpleNamespace(groups=bench.groups, config=config, authorizer=None)
    api = APIS[ApiKey.CONSUMER_GROUP_HEARTBEAT]
    client = ClientConnection(("127.0.0.1", 1), ("127.0.0.1", 2), "PLAINTEXT", "test", trio.Event())
    return RequestContext(services, client, api, version, cast(Any, None))  # type: ignore[arg-type]


def first_heartbeat(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    values: dict[str, Any] = {
        "group_id": "g",
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    return ConsumerGroupHeartbeatRequest(**values | fields)


async def test_a_member_joins_and_is_described(bench: Any, autojump_clock: MockClock) -> None:
    topic = bench.known_topics.add("t", 2)
    await bench.start()
    joined = await result_of(handle_consumer_group_heartbeat(first_heartbeat(), context(bench)))
    assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (ErrorCode.NONE, 1, 5000)
    request = ConsumerGroupDescribeRequest(group_ids=["g", "none", ""], include_authorized_operations=True)
    group, unknown, nameless = handle_consumer_group_describe(request, context(bench)).groups
    (member,) = group.members
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_id, assigned.topic_name, assigned.partitions) == (topic, "t", [0, 1])
    assert member.target_assignment == member.assignment
    assert (member.client_host, member.subscribed_topic_names) == ("/127.0.0.1", ["t"])
    assert (group.assignor_name, group.group_epoch, group.assignment_epoch) == ("uniform", 1, 1)
    assert group.authorized_operations == READ_DELETE_DESCRIBE
    assert (unknown.group_id, unknown.error_code) == ("none", ErrorCode.GROUP_ID_NOT_FOUND)
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


async def test_consumer_group_heartbeat_returns_an_error_message(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    refused = await result_of(handle_consumer_group_heartbeat(first_heartbeat(group_id=""), context(bench)))
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    refused = await result_of(handle_consumer_group_heartbeat(first_heartbeat(), context(bench, 1)))
    assert refused.error_message == "MemberId can't be empty."


async def test_the_protocol_can_be_switched_off(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    refused = await result_of(handle_consumer_group_heartbeat(first_heartbeat(), context(bench, 0, "classic")))
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    (group,) = handle_consumer_group_describe(request, context(bench, 0, "classic")).groups
    assert (group.group_id, group.error_code) == ("g", ErrorCode.UNSUPPORTED_VERSION)
