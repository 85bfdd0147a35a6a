"""The jobs of `gregor pipeline JOB`: one module for each job; `table` lists them, `desk` is their interface.

A job module, which imports nothing of Spark before it runs, has three things: `HELP`, one line;
`add_arguments(parser)`; and `run(options, desk) -> Summary`, which may be interrupted at any moment and run again. Jobs
keep their progress with their output (`archive.manifest`, or a group's offsets in the target), so that an interruption
costs only time.
"""
