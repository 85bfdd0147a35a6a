"""The HTTP listener of `gregor.control.listeners`: paths, methods, JSON bodies and answers."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus
from typing import Any

import trio

from ...broker.app.announcement import facts
from ...broker.app.lifetime import BrokerLifetime, RestartRefusedError
from ...broker.config import BrokerConfig
from ...broker.http.limits import HttpLimits
from ...broker.http.listener import HttpListener, on_loopback
from ...broker.http.messages import HttpRequest, HttpResponse
from ...client.errors import ClientError
from ...protocol.errors import BrokerError, ErrorCode
from ..asking import describe_broker_error
from ..snapshots import SnapshotError
from .actions import Actions
from .refusals import NotFoundError, RefusedError
from .states import States

logger = logging.getLogger(__name__)

KEY = "gregor.control.listeners"
JSON = "application/json"
TAR = "application/x-tar"
STATUSES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: HTTPStatus.NOT_FOUND,
    ErrorCode.TOPIC_ALREADY_EXISTS: HTTPStatus.CONFLICT,
}
"""The statuses of broker errors that are not 400."""
PATHS = (
    "GET /v1/broker, GET|POST /v1/topics, DELETE /v1/topics/NAME, POST /v1/records, POST /v1/reset, "
    "GET|DELETE /v1/faults, PUT|DELETE /v1/faults/NAME, PUT /v1/clock, GET /v1/states, "
    "GET|PUT|DELETE /v1/states/NAME, POST /v1/states/NAME/load"
)
PIECE_BYTES = 65536


class Control:
    """A control port of the broker of this process."""

    def __init__(self, config: BrokerConfig) -> None:
        """Open the listeners that `config` names. Raises ListenerError."""
        addresses = [on_loopback(KEY, address) for address in config.gregor_control_listeners]
        self._listener = HttpListener(
            KEY, addresses, self._answer, HttpLimits.of(config), names=config.gregor_control_hosts
        )
        self._states = States(config.log_dirs, config.gregor_control_max_states)
        self._lifetime: BrokerLifetime | None = None
        self.addresses = [f"http://{str(endpoint).partition('://')[2]}" for endpoint in self._listener.bound]
        """The addresses, with their actual ports."""

    async def run(self, lifetime: BrokerLifetime) -> None:
        """Answer requests until cancelled; those before the broker serves clients are answered with status 503."""
        self._lifetime = lifetime
        logger.info("control port at %s", ", ".join(self.addresses))
        try:
            await self._listener.run()
        finally:
            self._states.close()

    def close(self) -> None:
        """Close the listener, if `run` has not."""
        self._listener.close()
        self._states.close()

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        lifetime = self._lifetime
        if lifetime is None or not lifetime.is_ready:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, "the broker does not serve clients yet")
        try:
            return await self._routed(request, lifetime)
        except NotFoundError as missing:
            return _error(HTTPStatus.NOT_FOUND, str(missing))
        except RestartRefusedError as busy:
            return _error(HTTPStatus.CONFLICT, str(busy))
        except (RefusedError, SnapshotError) as refused:
            return _error(HTTPStatus.BAD_REQUEST, str(refused))
        except BrokerError as refused:
            return _error(STATUSES.get(refused.code, HTTPStatus.BAD_REQUEST), describe_broker_error(refused))
        except (ClientError, OSError) as fault:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, str(fault))

    async def _routed(self, request: HttpRequest, lifetime: BrokerLifetime) -> HttpResponse:
        actions = Actions(lifetime)
        # The patterns are matched in their order; each path that exists has one with each of its methods.
        match (request.method, *request.segments):
            case ["GET", "v1", "broker"]:
                return _json(facts(lifetime.broker))
            case ["GET", "v1", "topics"]:
                return _json(await actions.topics())
            case ["POST", "v1", "topics"]:
                return _json({"name": await actions.create_topic(_object(request))}, HTTPStatus.CREATED)
            case ["DELETE", "v1", "topics", name]:
                await actions.delete_topic(name)
                return _json({})
            case ["POST", "v1", "records"]:
                return _json({"records": await actions.load(request.body, request.query().get("topic"))})
            case ["POST", "v1", "reset"]:
                recreates = bool(_object(request).get("recreate", False))
                topics, groups = await actions.reset(recreates=recreates)
                return _json({"topics": topics, "groups": groups})
            case ["GET", "v1", "faults"]:
                return _json(await actions.faults())
            case ["DELETE", "v1", "faults"]:
                return _json({"cleared": await actions.clear_faults()})
            case ["PUT", "v1", "faults", name]:
                await actions.set_fault(name, request.body.decode("utf-8", "replace").strip())
                return _json({})
            case ["DELETE", "v1", "faults", name]:
                return _json({"cleared": await actions.clear_faults([name])})
            case ["PUT", "v1", "clock"]:
                offset_ms = _object(request).get("offset_ms")
                if type(offset_ms) is not int:
                    raise RefusedError('the body is not of the form {"offset_ms": 3600000}')
                await actions.set_clock_offset(offset_ms)
                return _json({})
            case [_, "v1", "states", *rest]:
                return await self._routed_state(request.method, rest, lifetime)
            case _:
                raise NotFoundError(f"there are: {PATHS}")

    async def _routed_state(self, method: str, rest: list[str], lifetime: BrokerLifetime) -> HttpResponse:
        match (method, *rest):
            case ["GET"]:
                return _json({name: {"bytes": size} for name, size in self._states.sizes().items()})
            case ["GET", name]:
                return HttpResponse(HTTPStatus.OK, self._tar(name), TAR)
            case ["PUT", name]:
                return _json({"bytes": await self._states.save(lifetime, name)}, HTTPStatus.CREATED)
            case ["POST", name, "load"]:
                await self._states.load(lifetime, name)
                return _json({})
            case ["DELETE", name]:
                self._states.delete(name)
                return _json({})
            case _:
                raise NotFoundError(f"there are: {PATHS}")

    def _tar(self, name: str) -> AsyncGenerator[bytes, None]:
        """Return the pieces of a snapshot's file. Raises NotFoundError."""
        path = self._states.path(name)

        async def pieces() -> AsyncGenerator[bytes, None]:
            async with await trio.open_file(path, "rb") as file:
                while piece := await file.read(PIECE_BYTES):
                    yield piece

        return pieces()


def _object(request: HttpRequest) -> Mapping[str, Any]:
    """Return the JSON object of a body; an empty body is an empty object. Raises RefusedError."""
    if not request.body.strip():
        return {}
    try:
        fields = json.loads(request.body)
    except (ValueError, RecursionError) as fault:
        raise RefusedError(f"the body is not JSON: {fault}") from None
    if not isinstance(fields, dict):
        raise RefusedError("the body is not a JSON object")
    return fields


def _json(fields: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
    return HttpResponse(status, json.dumps(fields).encode() + b"\n", JSON)


def _error(status: HTTPStatus, text: str) -> HttpResponse:
    return _json({"error": text}, status)
