"""The growth rate of the metadata log (`KafkaRaftMetrics`)."""

from __future__ import annotations

from collections import deque

from ..server.recent_values import RecentValues

SAMPLES = 1028
"""The size of the reservoirs of Kafka's histograms (Yammer's `ExponentiallyDecayingSample`)."""


class LogPace:
    """A measurement of the appends to the metadata log of this node."""

    def __init__(self) -> None:
        self.commit_ms = RecentValues()
        """The time of each commit of the controller, until its records are on the disk."""
        self.commits_ms = deque[float](maxlen=SAMPLES)
        """The times of the last commits until their records are applied, for percentiles."""
        self.commit_count = 0
        """The commits since the start."""
        self.appended_records = RecentValues()
        """Records that this node has appended as the controller."""
        self.fetched_records = RecentValues()
        """Records that this node has copied from the controller."""
