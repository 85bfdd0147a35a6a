"""A client of a broker in this process: it sends typed requests and returns typed responses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import unwrap
from typing import Any

import trio

from gregor.broker.api.contract import RequestContext
from gregor.broker.api.table import APIS
from gregor.broker.app.broker import Broker
from gregor.broker.server.client_connection import ClientConnection
from gregor.broker.server.outcome import result_of

DIALLED = ("192.0.2.1", 9092)
"""The address at which the client of `asking` reached the broker."""


@dataclass
class Asking:
    """A client of one broker."""

    broker: Broker
    client: ClientConnection

    async def ask(self, handler: Callable[..., Any], request: object, version: int | None = None) -> Any:
        """Return the handler's response to the request, in the newest version of its API or the one given."""
        api = next(api for api in APIS.values() if unwrap(api.handler) is handler)
        asked = api.max_version if version is None else version
        broker = self.broker
        context = RequestContext(broker.services, self.client, api, asked, broker.dispatcher, client_id="tester")
        return await result_of(handler(request, context), self.client.hangup)


def a_client(listener: str = "PLAINTEXT") -> ClientConnection:
    """Return a client that stays connected."""
    return ClientConnection(("10.0.0.9", 50000), DIALLED, listener, "test", trio.Event())
