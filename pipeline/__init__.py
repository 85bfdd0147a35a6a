"""Topics as Spark tables and tables as topics: data sources, a sink and jobs, on PySpark. Needs `gregor-broker[spark]`.

`session` starts Spark and registers the two formats: `kafka_log` reads log directories, `kafka_raw` reads and writes
through brokers; neither needs a jar. `columns/schemas` defines their columns, `options` their options.

Both formats return Arrow batches that one kernel builds from stored batches (`columns/record_batches` and
`columns/header_batches`). They differ in the source of these batches: log directories (`logs/`) or brokers
(`kafka/`). Tasks are synchronous: a Spark task is a process that waits for one operation at a time.

`jobs/` holds the programs of the command line; `archive/` is the table format that some of them maintain. Jobs that
copy to topics use `sink/exact_copy`, in transactions that contain their progress.

The broker and the client never import this package; the command line imports it only to run one of its jobs.
"""
