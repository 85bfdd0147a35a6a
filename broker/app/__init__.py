"""The assembly of the broker: its parts, the order in which the parts start and stop, and `gregor serve`."""
