"""How small a batch will become once compressed: the estimator of KIP-126.

A batch is closed when its *estimated* compressed size reaches ``batch.size``, because the true size is known only after
compressing. The estimate is kept for each topic and codec on its own, so that a topic that compresses badly does not
suffer from what another topic taught. It falls slowly and rises fast, so that an estimate that is too low (which is
what gets a batch refused as too large) is rare.
"""

from ...protocol.records.compression import Codec

INITIAL_RATIO = 1.0
IMPROVING_STEP = 0.005
DETERIORATING_STEP = 0.05
CONTINGENCY_FACTOR = 1.05
"""KIP-126's COMPRESSION_RATIO_ESTIMATION_FACTOR: the margin on top of the estimated ratio."""


class CompressionRatioEstimator:
    """Estimated compressed size / uncompressed size, for each (topic, codec).

    The steps are KIP-126's own. Kafka 3.9 differs: it jumps at once to an observed ratio that is worse than one step.
    """

    __slots__ = ("_ratios",)

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, Codec], float] = {}

    def ratio(self, topic: str, codec: Codec) -> float:
        """The ratio now expected; 1.0 for what was never observed, and always for uncompressed batches."""
        return self._ratios.get((topic, codec), INITIAL_RATIO)

    def observe(self, topic: str, codec: Codec, observed_ratio: float) -> float:
        """Move one step towards what a finished batch showed, and return the new estimate."""
        current = self.ratio(topic, codec)
        if observed_ratio < current:
            # Stopping at the observed ratio keeps the step from overshooting below what was ever seen.
            current = max(current - IMPROVING_STEP, observed_ratio)
        elif observed_ratio > current:
            current += DETERIORATING_STEP
        self._ratios[topic, codec] = current
        return current

    def reset(self, topic: str, codec: Codec) -> None:
        """Start again from 1.0, after a batch of this topic had to be split."""
        self._ratios[topic, codec] = INITIAL_RATIO
