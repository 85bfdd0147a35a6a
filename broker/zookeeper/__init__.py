"""Listeners for ZooKeeper's protocol, and the broker as the Kafka cluster behind their nodes.

`listener.py` has the sockets and connections of a `ZooKeeperService`, for a broker or a gateway. `kafka_requests.py`
makes Kafka requests of writes to nodes, for whatever answers Kafka's requests. `broker_cluster.py` is the cluster as a
broker knows it. Nothing here is loaded unless `gregor.zookeeper.listeners` is set.
"""
