"""ZooKeeper's protocol for Kafka's clients of 0.8 and 0.9, without sockets, clocks or an event loop.

- `jute.py`, `messages.py`: ZooKeeper's serialization; its requests and replies.
- `keeper_errors.py`, `paths.py`, `limits.py`: error codes, rules of paths, limits on memory.
- `tree.py`, `watches.py`, `sessions.py`: nodes with their versions, one-shot watches, sessions with their timeouts.
- `kafka_cluster.py`: the interface to Kafka, which the broker and the gateway implement.
- `broker_nodes.py`, `consumer_offsets.py`, `topic_changes.py`: nodes that show the cluster's metadata and the groups'
  committed offsets, and nodes with which old tools create, alter and delete topics.
- `service.py`, `four_letter_words.py`: replies to requests, and to monitoring commands.

The source of the rules is Apache ZooKeeper 3.4.6, the version that Kafka 0.8.2 and 0.9 ship.
"""
