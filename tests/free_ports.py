"""Ports for processes that are still to be started.

The kernel gives ports of its ephemeral range to clients that connect and to servers that listen on any port, so a port
that is free now may be taken before the process listens, or before it is restarted. The kernel never gives away ports
below that range. Parallel tests look for free ports too, so each process of tests locks its ports as long as it runs.
"""

from __future__ import annotations

import atexit
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
atexit.register(_claims.close)


def free_address() -> tuple[str, int]:
    """Return an address on loopback that is free and not reserved by another running process of tests."""
    for number in itertools.islice(_candidates, BEHIND - FIRST):
        address = ("127.0.0.1", FIRST + number % (BEHIND - FIRST))
        if _claim(address[1]) and _is_free(address):
            return address
    raise RuntimeError(f"no free port between {FIRST} and {BEHIND}")


def free_ports(count: int) -> int:
    """Return the first of ``count`` ports in a row that are free and not reserved, as `free_address` finds them."""
    first = port = free_address()[1]
    while port - first + 1 < count:
        following = free_address()[1]
        if following != port + 1:
            first = following
        port = following
    return first


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
