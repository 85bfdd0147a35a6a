"""Invalid arguments of a consumer are refused by the call; the consumer and its background tasks continue."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from gregor.client import Consumer
from gregor.client.consumer.argument_checks import check_record_count, check_times
from gregor.client.errors import InvalidTopicError
from tests.broker_process import BrokerProcess
from tests.client.topics import filled_topic
from tests.waiting import PATIENCE_S

WRONG_PLACES: list[tuple[Any, type[Exception], str]] = [
    ("topic", TypeError, "pairs"),
    (None, TypeError, "pairs"),
    (["topic"], TypeError, "pair"),
    (["ab"], TypeError, "pair"),
    (("topic", 0), TypeError, "pair"),
    ([("topic",)], TypeError, "pair"),
    ([("topic", "0")], TypeError, "partition must be int, not str"),
    ([("topic", 1.0)], TypeError, "partition must be int, not float"),
    ([("topic", -1)], ValueError, "partition must be from 0"),
    ([(b"topic", 0)], TypeError, "topic must be str, not bytes"),
    ([("bad!", 0)], InvalidTopicError, "bad!"),
]
WRONG_OFFSETS: list[tuple[Any, type[Exception], str]] = [
    ("5", TypeError, "offset must be int, not str"),
    (1.5, TypeError, "offset must be int, not float"),
    (None, TypeError, "offset must be int, not NoneType"),
    (-1, ValueError, "offset must be from 0"),
    (2**63, ValueError, "offset must be from 0"),
]
WRONG_TOPICS: list[tuple[Any, type[Exception], str]] = [
    ("topic", TypeError, "iterable of names"),
    (b"topic", TypeError, "iterable of names"),
    (7, TypeError, "iterable of names"),
    ([b"topic"], TypeError, "topic must be str, not bytes"),
    (["bad topic!"], InvalidTopicError, "bad topic!"),
    (re.compile(b"topic"), TypeError, "compiled from str"),
]


async def reads_on(bootstrap: str, wrong: Callable[[Consumer, str], object], error: type[Exception], text: str) -> None:
    """Make the call `wrong` on a consumer that reads a topic, and then read the topic's three records."""
    topic = await filled_topic(bootstrap, count=3)
    async with Consumer(bootstrap, group_id=f"g-{topic}", auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(error, match=text):
            await _done(wrong, consumer, topic)
        await trio.testing.wait_all_tasks_blocked(0.01)
        read = 0
        with trio.fail_after(PATIENCE_S):
            while read < 3:
                read += len(await consumer.poll())


async def _done(call: Callable[[Consumer, str], object], consumer: Consumer, topic: str) -> None:
    """Run a function that may be a coroutine function."""
    result = call(consumer, topic)
    if isinstance(result, Awaitable):
        with trio.fail_after(PATIENCE_S):
            await result


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer, places: consumer.assign(places),
        lambda consumer, places: consumer.end_offsets(places),
        lambda consumer, places: consumer.beginning_offsets(places),
    ],
)
@pytest.mark.parametrize(("places", "error", "text"), WRONG_PLACES)
async def test_invalid_partitions_are_refused_and_the_consumer_continues(
    broker_process: BrokerProcess,
    call: Callable[[Consumer, Any], object],
    places: Any,
    error: type[Exception],
    text: str,
) -> None:
    await reads_on(broker_process.bootstrap, lambda consumer, _: call(consumer, places), error, text)


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer, topic, offset: consumer.seek(topic, 0, offset),
        lambda consumer, topic, offset: consumer.commit({(topic, 0): offset}),
    ],
)
@pytest.mark.parametrize(("offset", "error", "text"), WRONG_OFFSETS)
async def test_invalid_offsets_are_refused_and_the_consumer_continues(
    broker_process: BrokerProcess,
    call: Callable[[Consumer, str, Any], object],
    offset: Any,
    error: type[Exception],
    text: str,
) -> None:
    await reads_on(broker_process.bootstrap, lambda consumer, topic: call(consumer, topic, offset), error, text)


@pytest.mark.parametrize(("topics", "error", "text"), WRONG_TOPICS)
async def test_invalid_subscriptions_are_refused_and_the_consumer_continues(
    broker_process: BrokerProcess, topics: Any, error: type[Exception], text: str
) -> None:
    await reads_on(broker_process.bootstrap, lambda consumer, _: consumer.subscribe(topics), error, text)


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer, topic: consumer.seek(topic, 9, 0),
        lambda consumer, topic: consumer.pause((topic, 0), (topic, 9)),
        lambda consumer, topic: consumer.resume((topic, 9)),
        lambda consumer, topic: consumer.current_lag(topic, 9),
    ],
)
async def test_a_partition_that_is_not_assigned_is_named(
    broker_process: BrokerProcess, call: Callable[[Consumer, str], object]
) -> None:
    await reads_on(broker_process.bootstrap, call, KeyError, "-9 is not assigned")


@pytest.mark.parametrize(("count", "error"), [(0, ValueError), (-1, ValueError), ("5", TypeError), (True, TypeError)])
def test_a_poll_for_no_record_is_refused(count: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_records"):
        check_record_count(count)


@pytest.mark.parametrize("time", [-1, -2, 2**63, "5", 1.5, None])
def test_a_time_that_a_broker_would_take_for_an_end_of_the_log_is_refused(time: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="timestamp_ms"):
        check_times({("topic", 0): time})
