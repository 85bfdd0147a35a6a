"""The place of a node in a cluster of several: registration, heartbeats, forwarding, and the controller's listener.

`membership.py` holds all of it for one node. A broker that is a cluster of its own never loads this room.
"""
