"""One partition's log on disk: segments, index, producer state, recovery. Synchronous; no event loop."""
