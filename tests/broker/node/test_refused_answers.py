"""Answers of coordinators whose writes are not replicated: an error in each API and version."""

from __future__ import annotations

import pytest

from gregor.broker.api.table import APIS
from gregor.broker.node.membership import refuse_all
from gregor.protocol.apis import ApiKey, request_class, response_class
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.field_meanings import fields_of
from gregor.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from gregor.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from gregor.protocol.messages.delete_groups import DeleteGroupsRequest
from gregor.protocol.messages.describe_transactions import DescribeTransactionsRequest
from gregor.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gregor.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from gregor.protocol.refusals import has_top_level_error
from gregor.protocol.schema import Entity, Message, Struct

CODE = ErrorCode.COORDINATOR_NOT_AVAILABLE
WITH_ENTRIES: dict[ApiKey, Message] = {
    ApiKey.OFFSET_COMMIT: OffsetCommitRequest(
        topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=0)])]
    ),
    ApiKey.TXN_OFFSET_COMMIT: TxnOffsetCommitRequest(
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=0)])]
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: AddPartitionsToTxnRequest(
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])]
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribeRequest(group_ids=["g"]),
    ApiKey.DESCRIBE_TRANSACTIONS: DescribeTransactionsRequest(transactional_ids=["tx"]),
    ApiKey.DELETE_GROUPS: DeleteGroupsRequest(groups_names=["g"]),
}
"""Requests whose answers say for each entry how it went; all others have an error at the top."""


def codes_in(struct: Struct) -> set[int]:
    """Return all error codes of an answer."""
    codes = {getattr(struct, name) for name in fields_of(type(struct), Entity.ERROR_CODE)}
    for name in struct.FIELD_DEFAULTS:
        entries = getattr(struct, name)
        for entry in entries if isinstance(entries, list) else ():
            codes |= codes_in(entry) if isinstance(entry, Struct) else set()
    return codes


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (api.key, version)
        for api in APIS.values()
        if api.waits_for_replicas
        for version in range(api.min_version, api.max_version + 1)
    ],
)
def test_every_answer_to_a_write_that_is_not_replicated_has_an_error(key: ApiKey, version: int) -> None:
    request, error = WITH_ENTRIES.get(key, request_class(key)()), BrokerError(CODE)
    if has_top_level_error(response_class(key), version):
        with pytest.raises(BrokerError):
            refuse_all(request, key, version, error)
    else:
        assert CODE in codes_in(refuse_all(request, key, version, error))
