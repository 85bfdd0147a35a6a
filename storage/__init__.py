"""Partition logs on disk. Synchronous code without an event loop or sockets.

Read the modules in this order: `files` (the operations on a disk), `index_format`, `offset_index`, `segment`,
`recovery`, `log_segments`, `partition_log` (which composes them), `log_opening`, `log_directory`, `log_manager`. Then
the state of a log: `producer_state`, `transaction_index`, `leader_epochs`; and its maintenance: `flushing`,
`retention`, `head_space`, `compaction`.

One thread appends, reads and decides. Long work is returned as a function, or as an object with a method `run`, for a
worker thread, and uses only files that are no longer written.
"""
