"""Answers to Fetch with few records in another format: they are ready in the task that makes them."""

from __future__ import annotations

import pytest
from trio.testing import wait_all_tasks_blocked

from gregor.broker.api.contract import RequestContext
from gregor.broker.api.handlers.fetch import MOST_BYTES_AT_ONCE, handle_fetch
from gregor.broker.api.table import APIS
from gregor.broker.replicas.fetching.conversion import SMALL_BYTES
from gregor.broker.server.pending import Pending
from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.fetch import FetchResponse
from tests.asking import Asking
from tests.broker.api.log_requests import batch, bytes_of, fetch, fetched, produce, produced, values_in, values_of


async def test_a_waiting_consumer_gets_a_record_without_a_task_of_its_connection(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("t")
    request = fetch((0, 0), max_wait_ms=60_000)
    context = RequestContext(
        asking.broker.services, asking.client, APIS[ApiKey.FETCH], 3, asking.broker.dispatcher, client_id="tester"
    )
    outcome = handle_fetch(request, context)
    assert isinstance(outcome, Pending)
    assert not outcome.is_complete
    await produced(asking, produce(batch(b"first"), acks=1))
    await wait_all_tasks_blocked()
    response = outcome.result()
    assert isinstance(response, FetchResponse), "not a coroutine, which would need a task"
    records = response.responses[0].partitions[0].records
    assert isinstance(records, bytes)
    assert values_in(records) == [(0, b"first")]


async def test_only_some_of_many_small_partitions_are_converted_in_memory(asking: Asking) -> None:
    count = 12
    asking.broker.services.metadata.create_topic("t", partitions=count)
    value = b"v" * 5000
    for index in range(count):
        await produced(asking, produce(batch(value), partition=index))
    answers = await fetched(asking, fetch(*((index, 0) for index in range(count))), 3)
    at_once = [answer for answer in answers if isinstance(answer.records, bytes)]
    assert 0 < len(at_once) * 5000 <= MOST_BYTES_AT_ONCE
    assert len(at_once) < count
    for answer in answers:
        assert await values_of(answer) == [(0, value)]


@pytest.mark.parametrize("has_large", [False, True])
async def test_the_histogram_has_one_value_for_a_request(asking: Asking, has_large: bool) -> None:
    asking.broker.services.metadata.create_topic("t", partitions=2)
    sizes = [100, 2 * SMALL_BYTES if has_large else 200]
    for index, size in enumerate(sizes):
        await produced(asking, produce(batch(b"v" * size), partition=index))
    for answer in await fetched(asking, fetch((0, 0), (1, 0)), 3):
        await bytes_of(answer)
    samples = asking.broker.services.metrics.fetch_conversions.samples()
    assert samples["TemporaryMemoryBytes"] == [asking.client.down_conversion.temporary_bytes]
    assert asking.client.down_conversion.record_count == 2
