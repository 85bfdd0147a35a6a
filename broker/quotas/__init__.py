"""Client quotas: their entities, the measured rates, and the throttling that follows (KIP-13, KIP-124)."""
