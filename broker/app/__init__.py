"""The broker put together: its parts, the order in which they start and stop, and `gregor serve`."""
