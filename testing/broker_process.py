"""A broker that runs in a process of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO

from .failure import START_S, STOP_S, BrokerFailedError

READ_BYTES = 65536


class BrokerProcess:
    """A `gregor serve --ephemeral` with its log in a temporary file.

    Its standard input is a pipe that nobody writes to. When this process ends, however it ends, the pipe ends, and the
    broker stops and removes its data.
    """

    def __init__(self, words: list[str]) -> None:
        command = [sys.executable, "-m", "gregor.command_line", "serve", "--ephemeral", "--ready-json"]
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        self._process = subprocess.Popen(  # noqa: S603 (the program is this Python, and no shell takes part)
            [*command, "--stop-at-eof", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        try:
            self.port = int(json.loads(self._ready_line())["port"])
        except BaseException:
            self._end(signal.SIGKILL)
            raise

    def _ready_line(self) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + START_S
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise BrokerFailedError(f"the broker was not ready after {START_S:g} s:\n{self._output()}")
            if not (piece := os.read(self._process.stdout.fileno(), READ_BYTES)):
                self._process.wait(STOP_S)
                raise BrokerFailedError(f"the broker could not start:\n{self._output()}")
            line += piece
        return line

    def _output(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace").strip()

    def stop(self) -> None:
        """Stop the process in order; it is killed if that takes longer than `STOP_S`."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise BrokerFailedError(f"the broker did not stop within {STOP_S:g} s:\n{self._output()}") from None
        finally:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._log.close()
