"""The estimator of KIP-126, which predicts the size of a batch after compression.

A batch is closed when its *estimated* compressed size reaches ``batch.size``, because the true size is known only
after compression. The estimator keeps one estimate for each topic and codec, so that a topic that compresses badly
is not affected by the data of other topics. The estimate falls slowly and rises fast, so that an estimate that is
too low (the reason for batches that a broker refuses as too large) is rare.
"""

from ...protocol.records.compression import Codec

INITIAL_RATIO = 1.0
IMPROVING_STEP = 0.005
DETERIORATING_STEP = 0.05
CONTINGENCY_FACTOR = 1.05
"""KIP-126's COMPRESSION_RATIO_ESTIMATION_FACTOR: the margin on top of the estimated ratio."""


class CompressionRatioEstimator:
    """The estimated compressed size / uncompressed size, for each (topic, codec).

    The steps are KIP-126's own. Kafka 3.9 differs: it moves at once to an observed ratio that is worse than one
    step.
    """

    __slots__ = ("_ratios",)

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, Codec], float] = {}

    def ratio(self, topic: str, codec: Codec) -> float:
        """Return the expected ratio; 1.0 for a topic and codec without observations, and always for uncompressed
        batches.
        """
        return self._ratios.get((topic, codec), INITIAL_RATIO)

    def observe(self, topic: str, codec: Codec, observed_ratio: float) -> float:
        """Move the estimate one step towards the ratio of a finished batch, and return the new estimate."""
        current = self.ratio(topic, codec)
        if observed_ratio < current:
            # Stopping at the observed ratio keeps the step from falling below every ratio observed so far.
            current = max(current - IMPROVING_STEP, observed_ratio)
        elif observed_ratio > current:
            current += DETERIORATING_STEP
        self._ratios[topic, codec] = current
        return current

    def reset(self, topic: str, codec: Codec) -> None:
        """Set the estimate to 1.0 again, after a batch of this topic had to be split."""
        self._ratios[topic, codec] = INITIAL_RATIO
