"""Kafka's histograms of conversions: what a Fetch of an old client costs, and that all others count as 0."""

from __future__ import annotations

import pytest

from gregor.broker.monitoring.request_conversions import (
    QUANTILES,
    SAMPLE_SIZE,
    RequestConversionCost,
    RequestConversions,
    quantile,
)
from gregor.broker.reporting.metric_families import broker_families
from gregor.protocol.errors import ErrorCode
from gregor.protocol.records.compression import Codec
from tests.asking import Asking
from tests.broker.api.log_requests import batch, bytes_of, fetch, fetched, produce, produced


def converted(conversions: RequestConversions, temporary_bytes: int, *, parts: int = 1) -> None:
    """Count a request with conversions that are sent at once."""
    conversions.request_count += 1
    cost = RequestConversionCost(conversions=conversions, parts=parts)
    for _ in range(parts):
        cost.add(1, 10, 3_000_000, temporary_bytes)
        cost.ended()


def test_requests_without_a_conversion_count_as_zero() -> None:
    conversions = RequestConversions()
    conversions.request_count += 2
    converted(conversions, 500, parts=2)
    conversions.request_count += 1
    assert conversions.samples() == {
        "MessageConversionsTimeMs": [0, 0, 0, 6],
        "TemporaryMemoryBytes": [0, 0, 0, 1000],
    }


def test_only_the_newest_requests_are_in_the_histogram() -> None:
    conversions = RequestConversions()
    converted(conversions, 1)
    conversions.request_count += SAMPLE_SIZE - 2
    converted(conversions, 2)
    assert conversions.samples()["TemporaryMemoryBytes"] == [0] * (SAMPLE_SIZE - 2) + [1, 2]
    conversions.request_count += 1
    assert conversions.samples()["TemporaryMemoryBytes"] == [0] * (SAMPLE_SIZE - 1) + [2]
    for _ in range(SAMPLE_SIZE + 5):
        converted(conversions, 7)
    assert conversions.samples()["TemporaryMemoryBytes"] == [7] * SAMPLE_SIZE


def test_quantiles_are_those_of_yammers_snapshot() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [quantile(values, float(share)) for share in QUANTILES] == pytest.approx(
        [50.5, 75.75, 95.95, 98.98, 99.99, 100.0]
    )
    assert quantile([], 0.5) == 0
    assert quantile([4.0], 0.5) == 4.0


def families(asking: Asking) -> dict[str, list[tuple[dict[str, str], float]]]:
    return {
        family.name: [(dict(labels), value) for labels, value in family.samples]
        for family in broker_families(asking.broker.services)
    }


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_a_fetch_of_an_old_client_is_counted_in_the_conversion_histograms(asking: Asking, codec: Codec) -> None:
    asking.broker.services.metadata.create_topic("t", partitions=2)
    stored = batch(*[b"v" * 100] * 50, codec=codec)
    for index in (0, 1):
        await produced(asking, produce(stored, partition=index))
    await fetched(asking, fetch((0, 0)), 11)
    for part in await fetched(asking, fetch((0, 0), (1, 0)), 2):
        await bytes_of(part)
    v1_message_bytes = 34 + 100
    expected = 2 * (len(stored) + 50 * v1_message_bytes)
    samples = asking.broker.services.metrics.fetch_conversions.samples()
    assert samples["TemporaryMemoryBytes"] == [0, expected], "one value for both partitions"
    assert samples["MessageConversionsTimeMs"][1] > 0
    assert asking.client.down_conversion.temporary_bytes == expected
    found = families(asking)
    assert found["kafka_network_requestmetrics_temporarymemorybytes_count"] == [({"request": "Fetch"}, 2)]
    by_share = {
        labels["quantile"]: value for labels, value in found["kafka_network_requestmetrics_temporarymemorybytes"]
    }
    assert by_share == {"0.50": expected / 2, **dict.fromkeys(QUANTILES[1:], expected)}
    assert list(found["kafka_network_requestmetrics_messageconversionstimems_count"]) == [({"request": "Fetch"}, 2)]


async def test_refusals_are_counted_by_reason_and_client(asking: Asking) -> None:
    metadata = asking.broker.services.metadata
    metadata.create_topic("off", configs={"message.downconversion.enable": "false"})
    metadata.create_topic("z")
    await produced(asking, produce(batch(b"a"), "off"))
    await produced(asking, produce(batch(b"a" * 100, codec=Codec.ZSTD), "z"))
    for topic, code in (("off", ErrorCode.UNSUPPORTED_VERSION), ("z", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)):
        (part,) = await fetched(asking, fetch((0, 0), topic=topic), 2)
        assert part.error_code == code
    assert families(asking)["gregor_refused_conversions_total"] == [
        ({"reason": "message.downconversion.enable"}, 1),
        ({"reason": "zstd"}, 1),
    ]
    (usage,) = asking.broker.services.clients.usages()
    assert (usage.refused_down_conversions, usage.refused_zstd) == (1, 1)
    assert [value for _, value in families(asking)["gregor_client_refused_conversions_total"]] == [2]
