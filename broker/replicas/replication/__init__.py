"""Partitions with several replicas: what a leader knows of its followers, how followers copy, who is in sync.

`leadership` and `following` are values without tasks; `fetcher`, `in_sync_changes` and `replicas` give them life.
"""
