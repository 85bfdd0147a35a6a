"""From a listener to a frame and from an answer's parts back to the socket. No handler knows of it."""
