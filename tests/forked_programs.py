"""Python programs as processes that are forked from one process, which has imported the broker before.

A start by ``exec`` takes a third of a CPU second, nearly all of it imports; a fork takes a few milliseconds. A forked
program has its own command line, environment, output and exit status, and is killed, stopped and awaited as others are.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

LARGEST_MESSAGE_BYTES = 128 * 1024
PRELOADED = ("gregor.broker", "gregor.protocol", "gregor.command_line.serve")
"""Modules and packages that are imported before the first fork; packages with all modules in them."""


class ForkedProgram:
    """A running program, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, server: ForkServer, pid: int, pidfd: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        """The exit status as in `subprocess.Popen`: negative after a signal; None until `poll` or `wait` found it."""
        self._server = server
        self._pidfd = pidfd

    def poll(self) -> int | None:
        """Return the exit status, None if the program still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status. Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            ended, _, _ = select.select([self._pidfd], [], [], timeout)
            if not ended:
                assert timeout is not None
                raise subprocess.TimeoutExpired(["fork", str(self.pid)], timeout)
            self.returncode = os.waitstatus_to_exitcode(self._server.status_of(self.pid))
            os.close(self._pidfd)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the program has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.Signals(number))

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A process that forks programs; its own end kills those that still run."""

    def __init__(self) -> None:
        self._control, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._statuses: dict[int, int] = {}
        self._lock = threading.Lock()
        with child:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked_programs", str(child.fileno())],
                cwd=Path(__file__).resolve().parent.parent,
                pass_fds=[child.fileno()],
            )

    def fork(self, program: Sequence[str], environment: Mapping[str, str], output: Path) -> ForkedProgram:
        """Start a program without standard input: ``-m MODULE`` or a path, and its arguments; append to ``output``."""
        order = {"program": program, "environment": dict(environment), "output": str(output), "folder": os.getcwd()}
        with self._lock:
            self._control.send(json.dumps(order).encode())
            while True:
                message, files, _, _ = socket.recv_fds(self._control, LARGEST_MESSAGE_BYTES, 1)
                assert message, "the fork server has ended"
                answer = json.loads(message)
                if files:
                    return ForkedProgram(self, answer["pid"], files[0])
                self._statuses[answer["pid"]] = answer["status"]

    def status_of(self, pid: int) -> int:
        """Return the wait status of a program that has ended."""
        with self._lock:
            while pid not in self._statuses:
                answer = json.loads(self._control.recv(LARGEST_MESSAGE_BYTES))
                self._statuses[answer["pid"]] = answer["status"]
            return self._statuses.pop(pid)

    def close(self) -> None:
        """End the server."""
        self._control.close()
        self._process.wait()


@functools.cache
def fork_server() -> ForkServer:
    """Return the one fork server of this process of tests, which is started at the first call."""
    server = ForkServer()
    atexit.register(server.close)
    return server


def _serve(control: socket.socket) -> None:
    """Fork programs until the other side closes the connection."""
    pidfds: dict[int, int] = {}
    while True:
        readable: list[int] = select.select([control.fileno(), *pidfds], [], [])[0]
        for pidfd in pidfds.keys() & readable:
            pid = pidfds.pop(pidfd)
            _, status = os.waitpid(pid, 0)
            os.close(pidfd)
            with contextlib.suppress(BrokenPipeError):
                control.send(json.dumps({"pid": pid, "status": status}).encode())
        if control.fileno() in readable:
            message = control.recv(LARGEST_MESSAGE_BYTES)
            if not message:
                break
            pid = os.fork()
            if not pid:
                for descriptor in (control.detach(), *pidfds):
                    os.close(descriptor)
                _run(json.loads(message))
            pidfd = os.pidfd_open(pid)
            pidfds[pidfd] = pid
            socket.send_fds(control, [json.dumps({"pid": pid}).encode()], [pidfd])
    for pid in pidfds.values():
        os.kill(pid, signal.SIGKILL)


def _run(order: Mapping[str, Any]) -> NoReturn:
    """Run a program in this process, to its end."""
    program = order["program"]
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    _open_as(0, os.devnull, os.O_RDONLY)
    _open_as(1, order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(1, 2)
    if program[0] == "-m":
        sys.argv = program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        runpy.run_path(program[0], run_name="__main__")
    raise SystemExit(0)


def _open_as(descriptor: int, path: str, flags: int) -> None:
    opened = os.open(path, flags, 0o666)
    os.dup2(opened, descriptor)
    os.close(opened)


def _preload() -> None:
    for name in PRELOADED:
        module = importlib.import_module(name)
        for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
            importlib.import_module(found.name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _preload()
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        _serve(listener)
