"""Ports for processes that are still to be started.

The kernel gives ports of its own range to whoever connects or asks for any port, so one that is free now may be taken
when the process listens at last, and between two of its lives. Those below that range it gives to nobody.
"""

from __future__ import annotations

import itertools
import os
import random
import socket

FIRST, BEHIND = 20_000, 32_000
_candidates = itertools.count(random.Random(os.getpid()).randrange(BEHIND - FIRST))


def free_address() -> tuple[str, int]:
    """An address on loopback that nobody has, and that no other caller in this process was given lately."""
    for number in itertools.islice(_candidates, BEHIND - FIRST):
        address = ("127.0.0.1", FIRST + number % (BEHIND - FIRST))
        with socket.socket() as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
        return address
    raise RuntimeError(f"no free port between {FIRST} and {BEHIND}")
