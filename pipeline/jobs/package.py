"""Write Gregor and the packages that it needs into one archive, for executors that have neither.

The archive is for a Python of the same version and platform as this one. Jobs take it as --package; with spark-submit
it is spark.archives, and the small program that is written beside it runs the jobs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..local_paths import path_argument
from .desk import Desk, Summary

HELP = "write an archive of this program for the executors of a cluster"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument for the archive."""
    parser.add_argument(
        "--output", type=path_argument, default=Path("gregor-package.tar.gz"), metavar="FILE", help="(%(default)s)"
    )


def run(options: argparse.Namespace, desk: Desk) -> Summary:
    """Write the archive and the program for spark-submit."""
    from ..executor_package import FOLDER, LAUNCHER, PYTHON, write_package

    names = write_package(options.output)
    launcher = options.output.with_name("gregor_job.py")
    launcher.write_text(LAUNCHER)
    size = options.output.stat().st_size
    settings = f"--conf spark.executorEnv.PYTHONPATH=./{FOLDER} --conf spark.pyspark.python={PYTHON}"
    notes = [
        f"gregor pipeline JOB --master spark://HOST:7077 --package {options.output} ...",
        f"spark-submit --archives {options.output}#{FOLDER} {settings} {launcher} JOB ...",
    ]
    return Summary(("FILE", "BYTES", "DISTRIBUTIONS"), [(str(options.output), size, len(names))], notes)
