"""Partitions with several replicas: the leader's state of its followers, copying by followers, in-sync sets.

`leadership` and `following` are state without tasks; `fetcher`, `in_sync_changes` and `replicas` have the tasks.
"""
