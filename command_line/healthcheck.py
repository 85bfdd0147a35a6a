"""`gregor healthcheck`: check that a broker answers, for a container's HEALTHCHECK and for scripts that wait."""

from __future__ import annotations

import argparse
import os
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress

API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""The smallest request that every broker answers: ApiVersions v0 with no client id."""
HANDSHAKE_RECORD = b"\x16"
"""The first byte of a TLS record that belongs to a handshake."""


EXAMPLES = """\
examples:
  gregor healthcheck
  gregor healthcheck --bootstrap-server localhost:9092 --wait-ms 30000
  gregor healthcheck --tls --bootstrap-server localhost:9093
  gregor healthcheck --command-config client.properties
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "healthcheck",
        help="exit 0 if a broker answers",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "--bootstrap-server", default=os.environ.get("GREGOR_BOOTSTRAP_SERVER") or "localhost:9092", metavar="HOST:PORT"
    )
    parser.add_argument("--command-config", metavar="FILE", help="properties file with client configurations")
    parser.add_argument(
        "--timeout-ms", type=int, default=2000, metavar="MS", help="longest wait for an answer (default: 2000)"
    )
    parser.add_argument("--wait-ms", type=int, default=0, metavar="MS", help="retry for this time (default: 0)")
    parser.add_argument(
        "--tls",
        action="store_true",
        help="begin a TLS handshake instead of a request: it needs no certificates and no login",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Return 0 if the broker answered in time, else 1 with one line that names the reason."""
    host, _, port = options.bootstrap_server.rpartition(":")
    if not port.isdigit():
        return _failed(f"--bootstrap-server {options.bootstrap_server} is not HOST:PORT")
    check: Callable[[tuple[str, int], float], None] = greet if options.tls else ask
    if options.command_config is not None:
        # A check without a file loads no client.
        from ..client.errors import ConfigError
        from .asking import UsageError
        from .secured_check import secured_check

        try:
            check = secured_check(options.command_config)
        except (UsageError, ConfigError) as error:
            return _failed(str(error))
    deadline = time.monotonic() + options.wait_ms / 1000
    while True:
        try:
            check((host.strip("[]") or "localhost", int(port)), options.timeout_ms / 1000)
        except (OSError, ValueError) as error:
            if time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            return _failed(f"no broker answers at {options.bootstrap_server}: {error}")
        return 0


def _failed(reason: str) -> int:
    print(f"gregor: {reason}", file=sys.stderr)  # noqa: T201
    return 1


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
            raise ValueError("the server there does not use Kafka's protocol")


def greet(address: tuple[str, int], timeout_s: float) -> None:
    """Begin a TLS handshake and leave it: the broker counts no failed login then.

    Raises OSError without a broker, ValueError if the answer is no record of a handshake.
    """
    import ssl

    context = ssl.create_default_context()
    hello = ssl.MemoryBIO()
    handshake = context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    with socket.create_connection(address, timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(hello.read())
        if connection.recv(1) != HANDSHAKE_RECORD:
            raise ValueError("the server there does not use TLS")
