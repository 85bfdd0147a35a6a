"""Answers to producers if the transaction coordinator cannot verify that a write belongs to a transaction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gregor.broker.api.contract import RequestContext
from gregor.broker.api.handlers import produce
from gregor.broker.api.table import APIS
from gregor.broker.replicas.partition import Partition
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record

BATCH = memoryview(
    v2.build_batch([Record(0, 5, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
)
V1, V2 = 11, 12
"""Produce versions before and with transactions V2."""
AGAIN = ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize(
    ("refused_with", "version", "told"),
    [
        (ErrorCode.NOT_COORDINATOR, V1, AGAIN),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, V2, AGAIN),
        (ErrorCode.CONCURRENT_TRANSACTIONS, V1, AGAIN),
        (ErrorCode.CONCURRENT_TRANSACTIONS, V2, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.INVALID_PRODUCER_EPOCH, V1, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
async def test_transient_errors_of_the_coordinator_become_retriable_errors(
    monkeypatch: pytest.MonkeyPatch, refused_with: ErrorCode, version: int, told: ErrorCode
) -> None:
    async def refuse(*_: Any) -> None:
        raise BrokerError(refused_with)

    monkeypatch.setattr(produce, "join_transaction", refuse)
    partitions = SimpleNamespace(find=lambda *_: None)
    services = SimpleNamespace(partitions=partitions)
    context = cast(RequestContext, SimpleNamespace(services=services, api=APIS[ApiKey.PRODUCE], api_version=version))
    data = PartitionProduceData(records=BATCH)
    request = ProduceRequest(transactional_id="t", topic_data=[TopicProduceData(partition_data=[data])])
    write = produce.Write("t", data, context)
    with pytest.raises(BrokerError) as caught:
        await produce._join_transaction(write, cast(Partition, None), request, context)
    assert caught.value.code is told
