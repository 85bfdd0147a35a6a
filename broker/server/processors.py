"""The processors that this process may use: its affinity, and the quotas of its control groups.

A container with ``--cpus=1`` sees all processors of its machine, and has a quota: the kernel's cgroup v2 interface file
``cpu.max``, or ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us`` of cgroup v1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
V1_CONTROLLERS = ("cpu", "cpu,cpuacct")


def processor_count(cgroups: Path = CGROUPS, own_cgroups: Path = OWN_CGROUPS) -> float:
    """Return for how many processors' time the process may ask, such as 0.5 or 4.

    ``cgroups`` is where the control groups are mounted, ``own_cgroups`` the file that names those of this process.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    available = float(os.cpu_count() or 1) if affinity is None else float(len(affinity(0)))
    return min((available, *_quotas(cgroups, own_cgroups)))


def _quotas(cgroups: Path, own_cgroups: Path) -> Iterator[float]:
    """Yield the quotas, in processors, of the process's control groups and of the groups around them."""
    try:
        lines = own_cgroups.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, named = line.partition(":")
        controllers, _, path = named.partition(":")
        if not controllers:
            mounts = [cgroups, cgroups / "unified"]
        elif "cpu" in controllers.split(","):
            mounts = [cgroups / name for name in V1_CONTROLLERS]
        else:
            continue
        # In a container without a namespace of its own for control groups, the path is that of the host, and only the
        # mounted root is there.
        own = PurePosixPath(path.lstrip("/"))
        for mount in mounts:
            for group in {mount / part for part in (own, *own.parents) if ".." not in part.parts}:
                yield from _quota(group)


def _quota(group: Path) -> Iterator[float]:
    """Yield the quota of one control group, if it has one."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu.cfs_period_us").read_text()
        if quota not in ("max", "-1"):
            yield int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return
