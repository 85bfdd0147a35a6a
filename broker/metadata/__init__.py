"""What the cluster knows of itself: topics, partitions, configurations, features, producer id blocks.

`state.py` is the value, `changes.py` what may happen to it, `log.py` how that is written in `__cluster_metadata` in
Kafka's own records. `store.py` puts them together: a change is written first and believed afterwards, and whoever keeps
something in step with the metadata (`broker/replicas/replication/replicas.py`: the partitions on disk) listens to it.
"""
