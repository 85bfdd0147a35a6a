"""The times of requests: `kafka.network:type=RequestMetrics`, with the percentiles of Kafka's histograms."""

from __future__ import annotations

from collections.abc import Iterator

from ...protocol.apis import api_name
from ...protocol.errors import ErrorCode
from ..monitoring.metrics import Family, Labels
from ..monitoring.request_conversions import QUANTILES, quantile
from ..monitoring.response_errors import ResponseErrors
from ..server.request_times import STEPS, RequestTimes, StepTimes


def request_time_families(times: RequestTimes) -> Iterator[Family]:
    """Yield percentiles and counts of each step of each API's requests."""
    kinds = [(api_name(key), found) for key, found in times.by_api()] + list(times.fetches())
    for step, name in enumerate(STEPS):
        family = f"kafka_network_requestmetrics_{name.lower()}"
        yield Family(family, _percentiles(kinds, step))
        yield Family(f"{family}_count", [({"request": request}, found.count) for request, found in kinds])


def response_error_families(errors: ResponseErrors) -> Iterator[Family]:
    """Yield ErrorsPerSec: the number of error codes in answers by API and error, NONE included."""
    counts = [
        ({"request": api_name(key), "error": ErrorCode(code).name}, count)
        for (key, code), count in list(errors.counts.items())
    ]
    yield Family("kafka_network_requestmetrics_errors_total", counts)


def _percentiles(kinds: list[tuple[str, StepTimes]], step: int) -> Iterator[tuple[Labels, float]]:
    for request, found in kinds:
        samples = found.sorted_samples(step)
        for share in QUANTILES:
            yield {"request": request, "quantile": share}, quantile(samples, float(share))
