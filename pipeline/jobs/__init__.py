"""What people run: `gregor pipeline JOB`. One module a job; `table` names them, `desk` is what each works at.

A job module, which imports nothing of Spark before it runs, has three things: `HELP`, one line;
`add_arguments(parser)`; and `run(options, desk) -> Summary`, which may be broken off at any moment and run again. Jobs
keep what they have done where their output is (`archive.manifest`, or a group's offsets in the target), so that an end
that never came costs time and nothing else.
"""
