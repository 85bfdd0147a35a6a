"""Ports for processes that are still to be started.

The kernel gives ports of its own range to whoever connects or asks for any port, so one that is free now may be taken
when the process listens at last, and between two of its lives. Those below that range it gives to nobody. Workers of
one run of tests have a share each, as a port stays free for a while after it was given.
"""

from __future__ import annotations

import itertools
import os
import random
import socket

FIRST, BEHIND = 20_000, 32_000
WORKERS = 4
SHARE = (BEHIND - FIRST) // WORKERS
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
_candidates = itertools.count(random.Random(os.getpid()).randrange(SHARE))


def free_address() -> tuple[str, int]:
    """An address on loopback that nobody has, and that no other caller in this process was given lately."""
    for number in itertools.islice(_candidates, SHARE):
        address = ("127.0.0.1", FIRST + _worker * SHARE + number % SHARE)
        with socket.socket() as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
        return address
    raise RuntimeError(f"no free port among {SHARE} from {FIRST + _worker * SHARE} on")
