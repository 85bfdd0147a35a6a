"""A Spark in a process of its own that runs commands, line by line, and the costs of each."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from bench.one_broker import OneBroker
from bench.process_tree import Part, cpu_by_part, watched_memory


class Costs(dict[str, float]):
    """The costs of the work in a `SparkProcess.costs` context, filled at its end.

    Seconds of CPU: `spark_cpu`, of it `driver_cpu`, `jvm_cpu` and `workers_cpu`, and `broker_cpu`; `wall_seconds`;
    MiB of memory at its peak: `mib`, and `driver_mib`, `jvm_mib`, `workers_mib`.
    """


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

    def ask(self, line: str) -> dict[str, float]:
        """Send a line and return its answer."""
        self._input.write(f"{line}\n")
        self._input.flush()
        return self._answer()

    def measured(self, line: str, brokers: Sequence[OneBroker]) -> dict[str, float]:
        """Return the answer to a line together with its `costs`."""
        with self.costs(brokers) as costs:
            answer = self.ask(line)
        return {**answer, **costs}

    @contextmanager
    def costs(self, brokers: Sequence[OneBroker]) -> Iterator[Costs]:
        """Measure the costs of the context in Spark's processes and in the brokers."""
        pid, costs = self._process.pid, Costs()
        started = time.perf_counter()
        spark_before, broker_before = cpu_by_part(pid), sum(broker.cpu_seconds() for broker in brokers)
        with watched_memory(pid) as memory:
            yield costs
        spark_after = cpu_by_part(pid)
        costs["wall_seconds"] = time.perf_counter() - started
        costs["broker_cpu"] = sum(broker.cpu_seconds() for broker in brokers) - broker_before
        costs["spark_cpu"] = sum(spark_after.values()) - sum(spark_before.values())
        costs["mib"] = memory.peak_bytes / 2**20
        for part in Part:
            costs[f"{part}_cpu"] = spark_after[part] - spark_before[part]
            costs[f"{part}_mib"] = memory.peak_by_part[part] / 2**20


@contextmanager
def spark_process(module: str, *arguments: str) -> Iterator[SparkProcess]:
    """Run a started Spark during the context."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield SparkProcess(process)
        assert process.stdin is not None
        process.stdin.close()
