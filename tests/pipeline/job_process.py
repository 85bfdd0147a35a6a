"""A job as a process that can be killed: `python -m tests.pipeline.job_process JOB ...`, its tasks without Spark.

Transactions are small here and checkpoints frequent, so that a kill mostly comes in the middle of something.
"""

import importlib
import sys

from gregor.pipeline.archive import compaction, manifest, replaying, writing
from tests.pipeline.job_desk import run_job, run_tasks_once

if __name__ == "__main__":
    replaying.TRANSACTION_ROWS = 40
    manifest.CHECKPOINT_ENTRIES = 3
    name = sys.argv[1]
    for module in (writing, compaction, importlib.import_module(f"gregor.pipeline.jobs.{name}")):
        module.__dict__["run_tasks"] = run_tasks_once
    run_job(name, *sys.argv[2:])
