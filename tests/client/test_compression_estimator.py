"""The rules of KIP-126's estimate."""

from hypothesis import given
from hypothesis import strategies as st

from gregor.client.producer.compression_estimator import CompressionRatioEstimator
from gregor.protocol.records.compression import Codec

ratios = st.floats(0.01, 1.5)


def test_the_estimate_starts_at_1_and_moves_by_fixed_steps() -> None:
    estimator = CompressionRatioEstimator()
    assert estimator.ratio("t", Codec.GZIP) == 1.0
    assert estimator.observe("t", Codec.GZIP, 0.2) == 0.995
    assert estimator.observe("t", Codec.GZIP, 1.2) == 0.995 + 0.05


def test_twenty_batches_lower_the_estimate_by_a_tenth() -> None:
    estimator = CompressionRatioEstimator()
    for _ in range(20):
        estimator.observe("t", Codec.LZ4, 0.1)
    assert abs(estimator.ratio("t", Codec.LZ4) - 0.9) < 1e-9


def test_topics_and_codecs_learn_on_their_own() -> None:
    estimator = CompressionRatioEstimator()
    estimator.observe("a", Codec.ZSTD, 0.1)
    assert estimator.ratio("b", Codec.ZSTD) == 1.0
    assert estimator.ratio("a", Codec.GZIP) == 1.0


@given(st.lists(ratios))
def test_a_reset_returns_the_estimate_to_1(observed: list[float]) -> None:
    estimator = CompressionRatioEstimator()
    for ratio in observed:
        estimator.observe("t", Codec.GZIP, ratio)
    estimator.reset("t", Codec.GZIP)
    assert estimator.ratio("t", Codec.GZIP) == 1.0


@given(st.lists(ratios, min_size=1))
def test_steps_are_small_and_in_the_right_direction(observed: list[float]) -> None:
    estimator = CompressionRatioEstimator()
    for ratio in observed:
        before = estimator.ratio("t", Codec.GZIP)
        after = estimator.observe("t", Codec.GZIP, ratio)
        assert before - 0.005 - 1e-12 <= after <= before + 0.05 + 1e-12
        if ratio < before:
            assert max(ratio, before - 0.005) == after
        if ratio > before:
            assert after > before
