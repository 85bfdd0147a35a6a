"""Rates and buckets with Kafka's arithmetic; the throttle times were compared with Kafka 3.9.1's answers."""

from __future__ import annotations

import pytest

from gregor.broker.quotas.rates import TokenBucket
from gregor.broker.server.sampled_rate import SampledRate, Window

WINDOW = Window(sample_count=11, sample_ms=1000)
LIMIT = 10_000


def test_the_first_burst_is_spread_over_all_but_one_sample() -> None:
    rate = SampledRate(WINDOW)
    rate.record(100_000, 0)
    assert rate.throttle_ms(LIMIT, 0) == 0
    rate.record(20_000, 0)
    assert rate.throttle_ms(LIMIT, 0) == 2000


def test_after_the_throttle_time_the_rate_is_down_to_the_limit() -> None:
    rate = SampledRate(WINDOW)
    rate.record(130_000, 5)
    throttle_ms = rate.throttle_ms(LIMIT, 5)
    assert throttle_ms == 3000
    # Kafka's formula: the part by which the window has grown counts only in part.
    assert rate.throttle_ms(LIMIT, 5 + throttle_ms) <= throttle_ms


def test_old_samples_are_forgotten() -> None:
    rate = SampledRate(WINDOW)
    rate.record(1_000_000, 0)
    assert rate.throttle_ms(LIMIT, 10_999) > 0
    assert rate.throttle_ms(LIMIT, 11_000) == 0


def test_a_rate_keeps_no_more_samples_than_its_window() -> None:
    rate = SampledRate(Window(sample_count=3, sample_ms=10))
    for now_ms in range(0, 1000, 10):
        rate.record(1, now_ms)
    assert rate.throttle_ms(1000, 990) == 0
    assert rate.throttle_ms(99, 990) > 0


def test_amounts_that_are_taken_back_are_not_counted() -> None:
    rate = SampledRate(WINDOW)
    rate.record(500_000, 0)
    rate.record(-500_000, 1)
    assert rate.throttle_ms(LIMIT, 1) == 0


def test_a_bucket_begins_full_and_can_be_overdrawn_once() -> None:
    bucket = TokenBucket(WINDOW)
    now_ms = 1_000_000
    bucket.take(11, 1.0, now_ms)
    assert bucket.throttle_ms(1.0, now_ms) == 0
    bucket.take(4, 1.0, now_ms)
    assert bucket.throttle_ms(1.0, now_ms) == 4000
    assert bucket.throttle_ms(1.0, now_ms + 1500) == 2500
    assert bucket.throttle_ms(1.0, now_ms + 4000) == 0


@pytest.mark.parametrize("idle_ms", [60_000, 10_000_000])
def test_a_bucket_holds_no_more_than_its_window_gives(idle_ms: int) -> None:
    bucket = TokenBucket(WINDOW)
    bucket.take(0, 2.0, 0)
    bucket.take(22, 2.0, idle_ms)
    assert bucket.throttle_ms(2.0, idle_ms) == 0
    bucket.take(1, 2.0, idle_ms)
    assert bucket.throttle_ms(2.0, idle_ms) == 500
