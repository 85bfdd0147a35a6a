"""Metrics of the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from .metrics import NO_LABELS, Family


def process_families() -> Iterator[Family]:
    """Yield the process metrics of Prometheus' own client libraries, and those of Kafka's `LinuxIoMetricsCollector`."""
    for line in Path("/proc/self/io").read_text().splitlines():
        name, _, value = line.partition(": ")
        if name in ("read_bytes", "write_bytes"):
            yield Family(f"kafka_server_kafkaserver_linux_disk_{name}", [(NO_LABELS, int(value))])
    times = os.times()
    yield Family("process_cpu_seconds_total", [(NO_LABELS, times.user + times.system)])
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    yield Family("process_resident_memory_bytes", [(NO_LABELS, resident_pages * os.sysconf("SC_PAGE_SIZE"))])
    yield Family("process_open_fds", [(NO_LABELS, len(os.listdir("/proc/self/fd")))])
