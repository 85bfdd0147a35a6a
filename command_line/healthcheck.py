"""`gregor healthcheck`: check that a broker answers, for a container's HEALTHCHECK and for scripts that wait."""

from __future__ import annotations

import argparse
import socket
import struct
import sys
import time

API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""The smallest request that every broker answers: ApiVersions v0 with no client id."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser("healthcheck", help="exit 0 if a broker answers")
    parser.add_argument("--bootstrap-server", default="localhost:9092", metavar="HOST:PORT")
    parser.add_argument(
        "--timeout-ms", type=int, default=2000, metavar="MS", help="longest wait for an answer (default: 2000)"
    )
    parser.add_argument("--wait-ms", type=int, default=0, metavar="MS", help="retry for this time (default: 0)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Return 0 if the broker answered in time, else 1 with one line that names the reason."""
    host, _, port = options.bootstrap_server.rpartition(":")
    if not port.isdigit():
        print(f"gregor: --bootstrap-server {options.bootstrap_server} is not HOST:PORT", file=sys.stderr)  # noqa: T201
        return 1
    deadline = time.monotonic() + options.wait_ms / 1000
    while True:
        try:
            ask((host.strip("[]") or "localhost", int(port)), options.timeout_ms / 1000)
        except (OSError, ValueError) as error:
            if time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            print(f"gregor: no broker answers at {options.bootstrap_server}: {error}", file=sys.stderr)  # noqa: T201
            return 1
        return 0


def ask(address: tuple[str, int], timeout_s: float) -> None:
    """Send one ApiVersions request.

    Raises OSError without a broker, ValueError if the answer is of another protocol.
    """
    with socket.create_connection(address, timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(API_VERSIONS_REQUEST)
        head = b""
        while len(head) < 8 and (piece := connection.recv(8 - len(head))):
            head += piece
        if head[4:] != b"\0\0\0\1":
            raise ValueError("what listens there does not speak Kafka's protocol")
