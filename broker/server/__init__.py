"""The network layer: from a listener to request frames, and from an answer's parts to the socket.

Handlers do not depend on it.
"""
