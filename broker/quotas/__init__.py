"""Client quotas: whose they are, the rates they are held against, and the throttling that follows (KIP-13, KIP-124)."""
