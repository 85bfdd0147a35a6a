"""Topics as Spark tables and tables as topics: data sources, a sink and jobs, on PySpark. Needs `gregor[spark]`.

`session` starts Spark and registers the two formats: `kafka_log` reads log directories, `kafka_raw` reads and writes
through brokers; neither needs a jar. `schemas` says which columns they have, `options` which options they take.

Both give Arrow batches made by one kernel out of stored batches, `record_batches` and `header_batches`; they differ in
where those come from: `log_files` and `log_plan`, or `wire`, `cluster_view` and `fetching`. Everything that a task does
is synchronous: a Spark task is a process that waits for one thing at a time.

`jobs` are what people run without a program of their own; `archive` is the table they keep. Jobs that copy to topics
do so by `exact_copy`, in transactions that hold their progress.

The broker, the client and the command line never import this room but to run a job of it.
"""
