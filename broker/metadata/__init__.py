"""The cluster's metadata: topics, partitions, configurations, features, producer id blocks.

`state.py` is the state, `changes.py` the changes that subscribers are notified of, `log.py` the log
`__cluster_metadata` in Kafka's own records. `store.py` combines them: a change is written first and applied afterwards,
and subscribers (`broker/replicas/replication/replicas.py`: the partitions on disk) are notified of it.
"""
