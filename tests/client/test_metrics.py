"""A client's metrics: Kafka's names and groups, there from the beginning."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from gregor.client import Consumer, Producer
from gregor.client.metrics import MetricName, Metrics


async def test_metrics_are_there_before_the_first_event() -> None:
    """KIP-126: `batch-split-rate` exists from the start, as its users check that it is 0."""
    values = Producer("127.0.0.1:1", client_id="me", buffer_memory=5_000).metrics()
    for name in ("record-send", "record-retry", "record-error", "batch-split", "request", "outgoing-byte"):
        assert values[MetricName("producer-metrics", f"{name}-rate", (("client-id", "me"),))] == 0
        assert values.value(f"{name}-total") == 0
    assert values.value("buffer-available-bytes") == values.value("buffer-total-bytes") == 5_000
    assert Consumer("127.0.0.1:1").metrics().value("fetch-rate") == 0
    assert {str(name) for name in values if name.name == "batch-split-rate"} == {
        "producer-metrics:batch-split-rate:{client-id=me}"
    }


async def test_traffic_is_counted_by_broker_and_in_all(autojump_clock: trio.testing.MockClock) -> None:
    metrics = Metrics("producer", "me")
    metrics.submitted("node-0", 100, trio.current_time())
    await trio.sleep(10)
    metrics.submitted("node-0", 100, trio.current_time())
    metrics.submitted("node-1", 60, trio.current_time())
    metrics.received("node-1", 7, trio.current_time())
    values = metrics.snapshot()
    assert values.value("outgoing-byte-total") == 260
    assert values.value("outgoing-byte-total", node="node-0") == 200
    assert values.value("outgoing-byte-rate", node="node-0") == 20
    assert values.value("request-total", node="node-1") == 1
    assert values.value("incoming-byte-total", node="node-1") == values.value("incoming-byte-total") == 7
    name = next(metric for metric in values if metric.name == "request-total" and len(metric.tags) == 2)
    assert str(name) == "producer-node-metrics:request-total:{client-id=me, node-id=node-0}"
    await trio.sleep(61)
    assert metrics.snapshot().value("outgoing-byte-rate") == 0
    assert metrics.snapshot().value("outgoing-byte-total") == 260


async def test_unknown_metrics_are_named_in_the_error() -> None:
    values = Metrics("producer").snapshot()
    with pytest.raises(KeyError, match="fetch-rate"):
        values.value("fetch-rate")
    with pytest.raises(KeyError, match="request-total of node-7"):
        values.value("request-total", node="node-7")
