"""The checks of rights before handlers run, beyond what `tests/conformance/test_authorization.py` asks."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.broker.api.authorization import with_authorization
from gregor.broker.api.contract import RequestContext
from gregor.broker.api.table import APIS
from gregor.broker.authorization.acl import Acl
from gregor.broker.authorization.acl_changes import new_record
from gregor.broker.server.outcome import result_of
from gregor.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from gregor.protocol.apis import AnyApiKey, ApiKey, GregorApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.append_numbered import (
    AppendNumberedPartition,
    AppendNumberedRequest,
    AppendNumberedTopic,
)
from gregor.protocol.messages.describe_clients import DescribeClientsRequest
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from tests.asking import Asking

pytestmark = pytest.mark.parametrize(
    "properties", [{"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}]
)
ONE_RECORD = v2.build_batch([Record(0, 1_700_000_000_000, None, b"v")])


def create_topics(asking: Asking) -> None:
    for name in ("mine", "theirs"):
        asking.broker.services.metadata.create_topic(name)


def allow(asking: Asking, *operations: AclOperation) -> None:
    """Allow the client operations on the topic "mine"."""
    kind, literal = AclResourceType.TOPIC, PatternType.LITERAL
    acls = [
        Acl(kind, "mine", literal, "User:ANONYMOUS", "*", operation, AclPermission.ALLOW) for operation in operations
    ]
    asking.broker.services.metadata.change_acls([new_record(acl) for acl in acls])


async def ask(asking: Asking, key: AnyApiKey, request: Any) -> Any:
    """Return the response to a request in the newest version of its API; "closed" where the connection ends instead."""
    api = with_authorization(APIS)[key]
    broker = asking.broker
    context = RequestContext(broker.services, asking.client, api, api.max_version, broker.dispatcher)
    response = await result_of(broker.dispatcher.respond(api, request, context))
    return "closed" if context.closing else response


def produce(*names: str, acks: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=ONE_RECORD)]
    topics = [TopicProduceData(name=name, partition_data=data) for name in names]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


async def test_allowed_topics_are_written_beside_refused_ones(asking: Asking) -> None:
    create_topics(asking)
    allow(asking, AclOperation.WRITE)
    answer = await ask(asking, ApiKey.PRODUCE, produce("theirs", "mine", "none"))
    codes = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert codes == {"mine": ErrorCode.NONE, "theirs": refused, "none": refused}


async def test_a_refused_produce_with_acks_0_closes_the_connection(asking: Asking) -> None:
    create_topics(asking)
    allow(asking, AclOperation.WRITE)
    assert await ask(asking, ApiKey.PRODUCE, produce("mine", acks=0)) is None
    assert await ask(asking, ApiKey.PRODUCE, produce("mine", "theirs", acks=0)) == "closed"
    assert asking.broker.services.partitions.get("mine", 0).log.log_end_offset == 2


async def test_append_numbered_needs_write_and_alter_on_the_topic(asking: Asking) -> None:
    create_topics(asking)

    async def code() -> int:
        partition = AppendNumberedPartition(index=0, records=ONE_RECORD)
        request = AppendNumberedRequest(topics=[AppendNumberedTopic(name="mine", partitions=[partition])])
        answer = await ask(asking, GregorApiKey.APPEND_NUMBERED, request)
        return int(answer.topics[0].partitions[0].error_code)

    allow(asking, AclOperation.WRITE)
    assert await code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    allow(asking, AclOperation.ALTER)
    assert await code() == ErrorCode.NONE


async def test_describe_clients_needs_the_right_to_describe_the_cluster(asking: Asking) -> None:
    refused = await ask(asking, GregorApiKey.DESCRIBE_CLIENTS, DescribeClientsRequest())
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    asking.client.is_trusted = True
    answer = await ask(asking, GregorApiKey.DESCRIBE_CLIENTS, DescribeClientsRequest())
    assert answer.error_code == ErrorCode.NONE
