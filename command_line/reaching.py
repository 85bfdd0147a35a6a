"""The wait until a broker can be reached, with a message about the reason of the delay."""

from __future__ import annotations

import sys

import trio

from ..client.config import ClientConfig
from ..client.errors import ConnectionLostError
from ..client.wire.cluster import parse_servers
from ..client.wire.dialling import open_stream

SECONDS_OF_SILENCE = 1.0
"""The time before the first message about a broker that may still be starting."""
SECONDS_OF_PATIENCE = 10.0
"""The time limit after which a tool ends with the reason."""
SECONDS_BETWEEN_ATTEMPTS = 0.1


async def reach_a_broker(bootstrap_servers: str, patience_s: float = SECONDS_OF_PATIENCE) -> None:
    """Wait until one of the servers accepts a connection.

    After `SECONDS_OF_SILENCE` standard error names the servers and the reason. Raises ConnectionLostError after
    `patience_s`, ConfigError for an invalid list of HOST:PORT.
    """
    servers = parse_servers(bootstrap_servers)
    reasons: dict[str, str] = {}
    is_reached = False

    async def try_until_open(host: str, port: int) -> None:
        nonlocal is_reached
        while True:
            try:
                stream = await open_stream(host, port, ClientConfig())
            except ConnectionLostError as failure:
                reasons[f"{host}:{port}"] = str(failure).rpartition(": ")[2].lower()
                await trio.sleep(SECONDS_BETWEEN_ATTEMPTS)
                continue
            await trio.aclose_forcefully(stream)
            is_reached = True
            attempts.cancel_scope.cancel()

    async def tell_what_is_waited_for() -> None:
        await trio.sleep(SECONDS_OF_SILENCE)
        print(f"waiting for {_listed(servers, reasons)}", file=sys.stderr, flush=True)  # noqa: T201

    with trio.move_on_after(patience_s):
        async with trio.open_nursery() as attempts:
            attempts.start_soon(tell_what_is_waited_for)
            for host, port in servers:
                attempts.start_soon(try_until_open, host, port)
    if not is_reached:
        raise ConnectionLostError(f"no broker within {patience_s:g} s at {_listed(servers, reasons)}")


def _listed(servers: list[tuple[str, int]], reasons: dict[str, str]) -> str:
    names = [f"{host}:{port}" for host, port in servers]
    return ", ".join(f"{name}: {reasons.get(name, 'no answer')}" for name in names)
