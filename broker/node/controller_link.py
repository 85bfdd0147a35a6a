"""The link to a controller in the same process (a `ControllerLink`): it calls handlers and sends nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import trio

from ...protocol.apis import api_key_of
from ...protocol.schema import Message
from ..api.contract import RequestContext
from ..api.dispatch import Dispatcher
from ..server.client_connection import ClientConnection
from ..server.outcome import result_of
from .controller_apis import CONTROLLER_APIS

Response = TypeVar("Response", bound=Message)
NOWHERE = ("127.0.0.1", 0)


class ControllerHere:
    """A link that calls the controller on the same node."""

    def __init__(self, dispatcher: Callable[[], Dispatcher]) -> None:
        """Use the dispatcher that `dispatcher` returns; it need not exist before the first request."""
        self._dispatcher = dispatcher
        self._client = ClientConnection(NOWHERE, NOWHERE, "", "this broker", trio.Event(), is_trusted=True)

    async def ask(
        self, request: Message, response: type[Response], *, timeout_s: float = 30.0, version: int | None = None
    ) -> Response:
        """Return the controller's answer, without a network round trip; see `peers.ControllerLink`."""
        api = CONTROLLER_APIS[api_key_of(request)]
        dispatcher = self._dispatcher()
        asked = api.max_version if version is None else version
        context = RequestContext(dispatcher.services, self._client, api, asked, dispatcher)
        return cast(Response, await result_of(dispatcher.respond(api, request, context)))
