"""A node's place in its cluster: alone, or one of several with registration, heartbeats, forwarding and a controller.

`node.py` is the interface to the code that assembles the broker; `lone_node.py` and `membership.py` hold the two
classes. A lone broker imports `lone_node.py` only.
"""
