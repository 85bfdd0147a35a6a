"""A node's membership in a cluster of several: registration, heartbeats, forwarding, the controller's listener.

`membership.py` holds the state of one node. A lone broker never imports this package.
"""
