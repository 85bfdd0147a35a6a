"""A node's place in a cluster of several: finding the controller, following it, being registered, forwarding to it.

`membership.py` is the whole of it for one node. A broker that is a cluster of its own has none, and never loads this.
"""
