"""One partition's log on disk, and all of them together. Synchronous; no event loop, no sockets.

Read in this order: `files` (all that is asked of a disk), `offset_index`, `segment`, `recovery`, `log_segments`,
`partition_log` (which composes them), `log_opening`, `log_directory`, `log_manager`. Beside them stand
`producer_state`, `transaction_index` and `leader_epochs`, which a log keeps, and what is done to it now and then:
`flushing`, `retention`, `head_space`, `compaction`.

One thread appends, reads and decides. What takes long is given out as a function or as an object with a `run` for a
worker thread, and touches only files that nobody writes.
"""
