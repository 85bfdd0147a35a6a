"""Ctrl-C that ends processes and raises KeyboardInterrupt, however the tests themselves were started."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


def interruptible(command: Sequence[str], *, stdin: int, stdout: int | None = None) -> subprocess.Popen[bytes]:
    """Start a process that has the default reaction to SIGINT, with a pipe as standard error.

    Shells start `command &` with SIGINT ignored, every process below inherits that, and Python then installs no
    handler: a test run in the background would wait for the end of its tools in vain.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_DFL) if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else None
    try:
        return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE)
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


@contextmanager
def raised_interrupts() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, also in a test run that a shell has started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
