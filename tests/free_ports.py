"""Ports for processes that are still to be started.

The kernel gives ports of its own range to whoever connects or asks for any port, so one that is free now may be taken
when the process listens at last, and between two of its lives. Those below that range it gives to nobody. Other tests
that run beside these look for free ports too, and so each claims what it was given, for as long as it runs.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import random
import socket
import tempfile
from pathlib import Path

FIRST, BEHIND = 20_000, 32_000
_candidates = itertools.count(random.Random(os.getpid()).randrange(BEHIND - FIRST))
_claims = (Path(tempfile.gettempdir()) / f"gregor-test-ports-{os.getuid()}").open("ab")


def free_address() -> tuple[str, int]:
    """An address on loopback that nobody has, and that no process of tests was given that still runs."""
    for number in itertools.islice(_candidates, BEHIND - FIRST):
        address = ("127.0.0.1", FIRST + number % (BEHIND - FIRST))
        if _claim(address[1]) and _is_free(address):
            return address
    raise RuntimeError(f"no free port between {FIRST} and {BEHIND}")


def _claim(port: int) -> bool:
    """Lock the byte of that number in a file that all tests share: the kernel unlocks it when this process ends."""
    try:
        fcntl.lockf(_claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def _is_free(address: tuple[str, int]) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(address)
        except OSError:
            return False
    return True
