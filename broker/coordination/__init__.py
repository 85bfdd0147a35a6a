"""Coordinators among several brokers: which groups and transactions are whose, and what must be replicated first.

`led_partitions` follows the leadership of a coordinator's partitions, reads those that this broker begins to lead and
forgets those that it ceases to lead. `request_writes` holds an answer back until what its request wrote is in all
in-sync logs. Transactions reach further than one broker: `cluster_markers` ends them where their partitions are led,
`remote_transactions` asks another broker's coordinator whether a write belongs to one.
"""
