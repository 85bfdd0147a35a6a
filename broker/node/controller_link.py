"""The way to a controller in this process (a `ControllerLink`): its handlers are called, and nothing is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

import trio

from ...client.wire.connection import api_key_of
from ...protocol.schema import Message
from ..server.requests import ClientConnection, RequestContext
from .controller_apis import CONTROLLER_APIS

if TYPE_CHECKING:
    from ..app.broker import Broker

Response = TypeVar("Response", bound=Message)
NOWHERE = ("127.0.0.1", 0)


class ControllerHere:
    """Asks the controller of the same node."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._client = ClientConnection(NOWHERE, NOWHERE, "", "this broker", trio.Event())

    async def ask(
        self, request: Message, response: type[Response], *, timeout_s: float = 30.0, version: int | None = None
    ) -> Response:
        """See `peers.ControllerLink`; what is asked here is answered at once."""
        api = CONTROLLER_APIS[api_key_of(request)]
        context = RequestContext(self._broker, self._client, api.key, api.max_version if version is None else version)
        return cast(Response, await self._broker.controller_dispatcher.respond(api, request, context))
