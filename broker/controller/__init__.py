"""The controller: which brokers live, who leads which partition, who is in sync, where replicas are to be.

Each subject is a module of decisions: from the metadata as it is to the records that change it, with nothing kept in
between. `controller.py` commits what they decide; `sessions.py` alone remembers something: who was heard of when.
There is one controller in a cluster, and other nodes reach it through `apis.py`, over a listener of its own.
"""
