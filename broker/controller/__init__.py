"""The controller: which brokers are alive, which lead partitions, which are in sync, and where replicas are placed.

Each subject is a module of pure decisions: from the present metadata to the records that change it. `controller.py`
commits these records; only `sessions.py` keeps state of its own: the time of each broker's last contact. A cluster has
one controller, which other nodes reach over its own listener (`node/controller_apis.py`).
"""
