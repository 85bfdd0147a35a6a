"""The table of jobs: each can be asked for help where neither Spark nor Arrow is installed."""

import subprocess
import sys

from gregor.pipeline.jobs.table import JOBS
from tests.waiting import PATIENCE_S

WITHOUT_EXTRA = """
import argparse, importlib, sys
for name in ("pyspark", "pyarrow", "pandas", "numpy", "plotly", "fastavro"):
    sys.modules[name] = None
for name in sys.argv[1:]:
    module = importlib.import_module(f"gregor.pipeline.jobs.{name}")
    module.add_arguments(argparse.ArgumentParser(description=module.__doc__))
    print(module.HELP)
"""


def test_help_needs_nothing_installed() -> None:
    command = [sys.executable, "-c", WITHOUT_EXTRA, *JOBS.values()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == len(JOBS)
