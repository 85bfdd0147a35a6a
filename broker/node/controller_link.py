"""The link to a controller in the same process (a `ControllerLink`): its handlers are called, and nothing is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import trio

from ...client.wire.connection import api_key_of
from ...protocol.schema import Message
from ..api.contract import RequestContext
from ..api.dispatch import Dispatcher
from ..server.client_connection import ClientConnection
from .controller_apis import CONTROLLER_APIS

Response = TypeVar("Response", bound=Message)
NOWHERE = ("127.0.0.1", 0)


class ControllerHere:
    """A link that asks the controller of the same node."""

    def __init__(self, dispatcher: Callable[[], Dispatcher]) -> None:
        """Ask the dispatcher that `dispatcher` returns, which need not exist before the first question."""
        self._dispatcher = dispatcher
        self._client = ClientConnection(NOWHERE, NOWHERE, "", "this broker", trio.Event())

    async def ask(
        self, request: Message, response: type[Response], *, timeout_s: float = 30.0, version: int | None = None
    ) -> Response:
        """Return the controller's answer, which is there at once; see `peers.ControllerLink`."""
        api = CONTROLLER_APIS[api_key_of(request)]
        dispatcher = self._dispatcher()
        asked = api.max_version if version is None else version
        context = RequestContext(dispatcher.services, self._client, api.key, asked, dispatcher)
        return cast(Response, await dispatcher.respond(api, request, context))
