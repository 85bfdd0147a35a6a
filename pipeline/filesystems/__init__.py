"""Files by path or URI, the same on the driver and on executors, without Java.

`locations` parses what users write: a path of this machine becomes a `pathlib.Path`, a URI of another store a
`remote_path.RemotePath` with the part of Path's interface that the pipeline uses. `files` has the operations with
guarantees on both: a file that appears whole or not at all, a file that is created only where none was, a move that can
be repeated. `stores` says what a store must be able to do for that; `object_store` (S3, Azure, Google) and `hdfs_store`
are the stores, `retries` what they do with answers that fail or get lost.
"""
