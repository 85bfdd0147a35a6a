"""The client without compiled modules: its own tests pass there too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = (
    "test_accumulator.py",
    "test_batch.py",
    "test_connection.py",
    "test_sender.py",
    "test_sequences.py",
    "test_splitting.py",
    "test_producer.py",
)
UNCOMPILED = """
import importlib.machinery, importlib.util, sys
import pytest

find = importlib.machinery.FileFinder.find_spec

def find_source(finder, name, target=None):
    spec = find(finder, name, target)
    if name.startswith("gregor.") and spec is not None and spec.origin and not spec.origin.endswith(".py"):
        source = spec.origin.partition(".cpython")[0] + ".py"
        spec = importlib.util.spec_from_file_location(name, source)
    return spec

importlib.machinery.FileFinder.find_spec = find_source
import gregor.client.producer.batch_sender_cy as checked
assert checked.__file__.endswith(".py"), checked.__file__
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[1:]]))
"""


def test_the_tests_of_the_client_pass_without_compiled_modules() -> None:
    files = [str(Path(__file__).with_name(name)) for name in FILES]
    done = subprocess.run(
        [sys.executable, "-c", UNCOMPILED, *files], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
