"""A Spark in a process of its own that runs commands, line by line, and the costs of each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from bench.one_broker import OneBroker
from bench.process_tree import cpu_seconds, watched_memory


class SparkProcess:
    """A process that answers each line of input with a line of JSON; its first answer means that it has started."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._input: IO[str] = process.stdin
        self._output: IO[str] = process.stdout
        self._answer()

    def _answer(self) -> dict[str, float]:
        line = self._output.readline()
        if not line:
            raise RuntimeError("the Spark has ended; see what it printed")
        answer: dict[str, float] = json.loads(line)
        return answer

    def measured(self, line: str, brokers: Sequence[OneBroker]) -> dict[str, float]:
        """Return the answer, with `spark_cpu` and `broker_cpu` in seconds, and the peak of Spark's memory in `mib`."""
        pid = self._process.pid
        spark_before, broker_before = cpu_seconds(pid), sum(broker.cpu_seconds() for broker in brokers)
        with watched_memory(pid) as memory:
            self._input.write(f"{line}\n")
            self._input.flush()
            figures = self._answer()
        figures["spark_cpu"] = cpu_seconds(pid) - spark_before
        figures["broker_cpu"] = sum(broker.cpu_seconds() for broker in brokers) - broker_before
        figures["mib"] = memory.peak_bytes / 2**20
        return figures


@contextmanager
def spark_process(module: str, *arguments: str) -> Iterator[SparkProcess]:
    """Run a started Spark during the context."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield SparkProcess(process)
        assert process.stdin is not None
        process.stdin.close()
