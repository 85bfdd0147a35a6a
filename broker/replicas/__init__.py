"""The partitions that this broker holds: their logs, roles and replication, reading for Fetch, and log maintenance."""
