"""Typed requests to the brokers that answer them: split by leader or coordinator, with the answers merged."""

from __future__ import annotations

import copy
from collections import defaultdict
from functools import partial
from typing import Any
from uuid import UUID

import trio

from ...broker.server.client_connection import ClientGoneError
from ...broker.server.request_header_cy import Header
from ...protocol.apis import AnyApiKey, ApiKey, response_class
from ...protocol.codec import Buffer
from ...protocol.errors import DecodeError, ErrorCode
from ...protocol.message_places import carried_fields, entries_of, layout_of, places_in
from ...protocol.refusals import has_top_level_error, merge, refused, take_out
from ...protocol.schema import Message, Struct
from ..frames import read_answer, request_frame
from ..sessions import Session
from ..stream import LinkLostError
from ..upstream import UnreachableError, Upstream
from .routes import TO_CONTROLLER, TO_COORDINATORS, TO_EVERY_BROKER, TO_LEADERS, keyed_parts

ANY = -1
"""The node id of a part of a request that any broker answers, if only with an error."""
STALE_LEADER_CODES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors after which the leaders of a topic are asked for again."""
STALE_COORDINATOR_CODES = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})

Parts = dict[int, Any]
"""The part of a request for each broker, by node id."""


def topic_text(topic_id: UUID) -> str:
    """Return a topic id as it stands for a topic's name, among places and leaders."""
    return str(topic_id)


class Router:
    """A router of the requests of all clients; the links belong to each client's session."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def parts(self, key: AnyApiKey, request: Message, session: Session) -> Parts:
        """Return the part of a request for each broker.

        A request for a single broker is returned itself, so that callers must not change the parts.

        Raises UnreachableError if a coordinator cannot be found.
        """
        only = session.only_node
        if only is not None:
            return {only: request}
        if key in TO_LEADERS:
            return await self._parts_for_leaders(request)
        if key in TO_COORDINATORS:
            return await self._parts_for_coordinators(key, request)
        if key in TO_EVERY_BROKER:
            nodes = list(self._upstream.brokers)
            return {node: copy.deepcopy(request) for node in nodes} or {ANY: request}
        if key in TO_CONTROLLER and self._upstream.controller in self._upstream.brokers:
            return {self._upstream.controller: request}
        return {ANY: request}

    async def leaders(self, request: Message) -> dict[tuple[str, int], int]:
        """Return the leader of each partition in a request; `ANY` for one that is unknown even to the cluster."""
        places = [(topic, part) for topic, part in places_in(request, topic_text) if part is not None]
        leader = self._upstream.leader
        unknown = {topic for topic, part in places if leader(topic, part) < 0}
        if unknown:
            await self._upstream.refresh_leaders(unknown)
        return {(topic, part): leader(topic, part) for topic, part in places}

    def only_leader(self, request: Message) -> int | None:
        """Return the leader of all partitions in a request, as last heard; None if it is not one broker."""
        nodes = {
            ANY if part is None else self._upstream.leader(topic, part)
            for topic, part in places_in(request, topic_text)
        }
        return nodes.pop() if len(nodes) == 1 and ANY not in nodes else None

    async def _parts_for_leaders(self, request: Message) -> Parts:
        by_place = await self.leaders(request)
        nodes = list(dict.fromkeys(by_place.values()))
        if len(nodes) < 2:
            return {nodes[0] if nodes else ANY: request}
        parts: Parts = {}
        for node in nodes[1:]:
            taken = take_out(request, lambda topic, part, node=node: by_place.get((topic, part)) == node, topic_text)  # type: ignore[misc]
            if taken is not None:
                parts[node] = taken
        parts[nodes[0]] = request
        return parts

    async def _parts_for_coordinators(self, key: AnyApiKey, request: Any) -> Parts:
        keys = TO_COORDINATORS[key]
        entries: defaultdict[int, list[Any]] = defaultdict(list)
        for name, entry in keyed_parts(keys, request):
            node = ANY if name is None else await self._upstream.coordinator(keys.key_type, name)
            entries[node].append(entry)
        if len(entries) < 2:
            return dict.fromkeys(entries, request)
        parts: Parts = {}
        for node, own in entries.items():
            parts[node] = copy.copy(request)
            setattr(parts[node], keys.several, own)
        return parts

    async def send(self, key: AnyApiKey, version: int, header: Header, session: Session, request: Message) -> Any:
        """Send a typed request to all brokers that it concerns; return the merged response.

        Returns None for Produce with acks=0. A broker that cannot be reached refuses its part with a retriable error.
        Raises LinkLostError and UnreachableError if the answer has no place for such an error, and ClientGoneError.
        """
        try:
            parts = await self.parts(key, request, session)
        except UnreachableError:
            return _refusal(key, version, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if len(parts) == 1:
            ((node, part),) = parts.items()
            return await self._send_part(key, version, header, session, node, part)
        return await self._send_parts(key, version, header, session, parts)

    async def _send_parts(self, key: AnyApiKey, version: int, header: Header, session: Session, parts: Parts) -> Any:
        """Send each broker its part, all at once, and return the merged response. Raises ClientGoneError."""
        responses: dict[int, Any] = {}
        async with trio.open_nursery() as nursery:
            for node, part in parts.items():
                nursery.start_soon(
                    partial(self._send_one_of_several, key, version, header, session, node, part, responses)
                )
        if session.client.hangup.is_set() and len(responses) < len(parts):
            raise ClientGoneError("disconnected while its request was pending")
        return _merged([responses[node] for node in parts])

    async def pass_on(
        self, key: AnyApiKey, header: Header, frame: memoryview, session: Session, request: Message
    ) -> bytes | Message | None:
        """Send a request as it is if it is for one broker, and return the frame of its answer; else see `send`."""
        version = header.api_version
        try:
            parts = await self.parts(key, request, session)
        except UnreachableError:
            return _refusal(key, version, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if len(parts) == 1:
            ((node, part),) = parts.items()
            return await self.exchange(key, version, frame, session, node, part)
        whole: Message | None = await self._send_parts(key, version, header, session, parts)
        return whole

    async def _send_one_of_several(
        self,
        key: AnyApiKey,
        version: int,
        header: Header,
        session: Session,
        node: int,
        part: Message,
        responses: dict[int, Any],
    ) -> None:
        try:
            responses[node] = await self._send_part(key, version, header, session, node, part)
        except (LinkLostError, UnreachableError):
            responses[node] = response_class(key)()
        except ClientGoneError:
            # The nursery would put an exception into a group; `send` finds the response missing.
            return

    async def _send_part(
        self, key: AnyApiKey, version: int, header: Header, session: Session, node: int, part: Message
    ) -> Any:
        frame = request_frame(key, version, header, part)
        found = await self.exchange(key, version, frame, session, node, part)
        if found is None or isinstance(found, Message):
            return found
        try:
            response = read_answer(key, version, found)
        except DecodeError as error:
            raise LinkLostError(f"broker {node} answered {key.name} v{version} malformed: {error}") from error
        if session.only_node is None:
            self.heed(key, version, part, response)
        return response

    async def exchange(
        self, key: AnyApiKey, version: int, frame: Buffer, session: Session, node: int, part: Any
    ) -> bytes | Message | None:
        """Send a frame, which holds the request ``part``, to one broker, and return the frame of its answer.

        Returns None for Produce with acks=0, and a response that refuses the request with a retriable error if the
        broker cannot be reached. Raises LinkLostError and UnreachableError if the response has no place for an error.
        """
        is_routed = session.only_node is None and node != ANY
        try:
            link = await (session.link(node) if node != ANY else session.home())
            if key is ApiKey.PRODUCE and part.acks == 0:
                await link.send(frame)
                return None
            return await link.exchange(frame, session.client.hangup)
        except (LinkLostError, UnreachableError) as error:
            self._forget(key, part)
            if not (is_routed and _can_refuse(key, version)):
                raise
            # The broker may have appended the records before the connection was lost.
            is_unknown = key is ApiKey.PRODUCE and isinstance(error, LinkLostError)
            code = ErrorCode.REQUEST_TIMED_OUT if is_unknown else _unreachable_code(key)
            return _refusal(key, version, part, code)

    def heed(self, key: AnyApiKey, version: int, named: Message, response: Message) -> None:
        """Forget the leaders and coordinators of what ``named`` names, if a broker has answered that it is not one."""
        if key in TO_LEADERS or key in TO_COORDINATORS:
            codes = set(_error_codes(response, version))
            if codes & (STALE_LEADER_CODES if key in TO_LEADERS else STALE_COORDINATOR_CODES):
                self._forget(key, named)

    def _forget(self, key: AnyApiKey, request: Message) -> None:
        if key in TO_LEADERS:
            self._upstream.forget_leaders({topic for topic, _ in places_in(request, topic_text)})
        keys = TO_COORDINATORS.get(key)
        if keys is not None:
            for name, _ in keyed_parts(keys, request):
                if name is not None:
                    self._upstream.forget_coordinator(keys.key_type, name)


def _unreachable_code(key: AnyApiKey) -> ErrorCode:
    """Return the error that makes clients look for the broker again; clients of all versions know it."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if key in TO_LEADERS else ErrorCode.NOT_COORDINATOR


def _can_refuse(key: AnyApiKey, version: int) -> bool:
    return key in TO_LEADERS or key in TO_COORDINATORS or has_top_level_error(response_class(key), version)


def _refusal(key: AnyApiKey, version: int, request: Message, code: ErrorCode) -> Message:
    cls = response_class(key)
    if key not in TO_LEADERS and has_top_level_error(cls, version):
        return cls(error_code=code)
    return refused(request, cls, version, code)


def _error_codes(struct: Message, version: int) -> list[int]:
    """Return all error codes in a response."""
    codes: list[int] = []

    def collect(entry: Struct, layout: Any) -> None:
        for field in carried_fields(layout):
            value = getattr(entry, field.name)
            if field.name == "error_code":
                codes.append(value)
            elif (inside := entries_of(field)) is not None:
                for each in value or ():
                    collect(each, inside)

    collect(struct, layout_of(type(struct), version))
    return codes


def _merged(responses: list[Any]) -> Any:
    """Return one response with the entries of all, the longest throttle time and the first error."""
    given = [response for response in responses if response is not None]
    if not given:
        return None
    whole, *others = given
    for other in others:
        merge(whole, other)
        if getattr(other, "error_code", 0) and not whole.error_code:
            whole.error_code = other.error_code
        if hasattr(whole, "throttle_time_ms"):
            whole.throttle_time_ms = max(whole.throttle_time_ms, other.throttle_time_ms)
    return whole
