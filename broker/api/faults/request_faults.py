"""A dispatcher that applies fault rules: it delays, refuses or truncates answers, or closes connections.

Rules are checked in the order of their names. The delays of all matching rules add up; of the other rules the first
match decides, except that several error rules may apply to different partitions of one request.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn
from uuid import UUID

import trio

from ....protocol.apis import AnyApiKey, ApiKey, response_class
from ....protocol.errors import DecodeError
from ....protocol.field_meanings import sender_fields
from ....protocol.message_places import Place, layout_of, places_in
from ....protocol.messages.envelope import EnvelopeRequest
from ....protocol.messages.fetch import FetchRequest, FetchResponse
from ....protocol.messages.produce import ProduceRequest
from ....protocol.refusals import Hits, has_top_level_error, is_empty, merge, refuse_entries, refused, take_out
from ....protocol.schema import Message
from ...faults.injection import FaultInjection
from ...faults.occasions import RuleInForce
from ...faults.rule import SPARED_CLIENT_ID, Action, FaultRule, Moment, fits
from ...replicas.fetching.sessions import FetchedPartition
from ...server.client_connection import ClientConnection, ClientGoneError, UnanswerableError
from ...server.outcome import WAITING, Outcome, result_of
from ...server.parts import Answer
from ...server.request_header_cy import parse_header
from ..contract import Api, RequestContext, Route
from ..dispatch import Dispatcher
from ..services import Services
from .cut_answer import CutAnswer
from .fetch_refusals import refuse_silent_partitions

EXPLANATION = "A fault rule of this broker (gregor.fault.rule) caused this error."
BROKERS_CLIENT_ID = re.compile(r"(?:broker|metadata|raft-client)-(\d{1,10})(?:-.*)?|(\d{1,10})")
"""The client ids of Gregor's and Kafka's brokers (ReplicaFetcherThread, KafkaRaftManager, NodeToController...)."""


class FaultyDispatcher(Dispatcher):
    """A dispatcher that applies the fault rules to requests and answers."""

    has_plain_lane = False
    takes_encoded = False

    def __init__(self, services: Services, apis: Mapping[int, Api], route: Route, faults: FaultInjection) -> None:
        super().__init__(services, apis, route)
        self._faults = faults
        self._cuts: dict[ClientConnection, RuleInForce] = {}
        """The rule that truncates the answer in progress, by connection; a connection has one answer at a time."""

    def is_pipelined(self, frame: memoryview, client: ClientConnection) -> bool:
        """Return whether `Dispatcher.is_pipelined` says so and no rule may match."""
        return super().is_pipelined(frame, client) and not self._faults.concerns(int.from_bytes(frame[:2], "big"))

    def answer(self, frame: memoryview, client: ClientConnection) -> Outcome[Answer | None]:
        """Answer as `Dispatcher.answer` does; a rule may truncate the answer."""
        answer = super().answer(frame, client)
        may_match = self._faults.concerns(int.from_bytes(frame[:2], "big"))
        return self._perhaps_truncated(answer, client) if may_match and isinstance(answer, WAITING) else answer

    async def _perhaps_truncated(self, answering: Outcome[Answer | None], client: ClientConnection) -> Answer | None:
        try:
            answer = await result_of(answering, client.hangup)
        finally:
            cut = self._cuts.pop(client, None)
        if cut is None or answer is None:
            return answer
        return [CutAnswer(answer, cut.rule.kept_bytes, _reason(cut))]

    def respond(self, api: Api, request: Message, context: RequestContext) -> Outcome[Message | None]:
        """Respond as `Dispatcher.respond` does, except to requests that a rule matches."""
        striking = self._striking(api.key, request, context)
        if not striking:
            return super().respond(api, request, context)
        return self._respond_under_rules(striking, api, request, context)

    async def _respond_under_rules(
        self, striking: Sequence[RuleInForce], api: Api, request: Message, context: RequestContext
    ) -> Message | None:
        early = [known for known in striking if known.rule.moment is Moment.REQUEST]
        await self._suffer(early, context)
        response = await self._refused_or_handled(early, api, request, context)
        late = [known for known in striking if known.rule.moment is Moment.ANSWER]
        await self._suffer(late, context)
        if response is not None:
            response = self._with_errors(late, response, context)
        return response

    # --- requests that a rule matches

    def _striking(self, key: AnyApiKey, request: Message, context: RequestContext) -> list[RuleInForce]:
        peer = _sending_broker(request, context)
        if not self._faults.concerns(key) or context.is_forwarded or _is_spared(request, context):
            return []
        places: list[Place] | None = None

        def matches(known: RuleInForce) -> bool:
            nonlocal places
            rule = known.rule
            if not (_is_meant(rule, key, peer, context) and rule.is_between(self.services.config.node_id, peer)):
                return False
            if _is_handshake(key, peer) and not rule.apis:
                return False
            if not rule.names_places:
                return True
            if places is None:
                places = self._places(request, context)
            return any(rule.concerns_place(*place) for place in places)

        return self._faults.striking(matches)

    def _places(self, request: Message, context: RequestContext) -> list[Place]:
        """Return the topics and partitions of a request, including those that it refers to without naming them."""
        places = list(places_in(request, self._topic_name))
        if isinstance(request, FetchRequest):
            places += [(fetched.topic, fetched.wanted.partition) for fetched in self._session_of(request)]
        if context.api_key is ApiKey.METADATA and not places:
            places = [(topic, None) for topic in context.services.metadata.topics]
        return places

    def _session_of(self, request: FetchRequest) -> Collection[FetchedPartition]:
        return self.services.fetch_sessions.partitions_of(request.session_id)

    def _topic_name(self, topic_id: UUID) -> str | None:
        topic = self.services.metadata.topic_by_id(topic_id)
        return None if topic is None else topic.name

    # --- effects of rules

    async def _suffer(self, striking: Sequence[RuleInForce], context: RequestContext) -> None:
        """Apply delays and effects that close the connection. Raises UnanswerableError, ClientGoneError."""
        delay_s = sum(known.delay_s() for known in striking if known.rule.action is Action.DELAY)
        if delay_s:
            await trio.sleep(delay_s)
        for known in striking:
            match known.rule.action:
                case Action.DISCONNECT:
                    raise UnanswerableError(_reason(known))
                case Action.STALL:
                    await self._stall(known, context)
                case Action.TRUNCATE:
                    self._cuts[context.client] = known
                    return

    async def _stall(self, known: RuleInForce, context: RequestContext) -> NoReturn:
        """Wait until the client disconnects or the rule ends; then close the connection, so that the client retries.

        Raises ClientGoneError, UnanswerableError.
        """
        is_gone = False
        with trio.move_on_after(self._faults.remaining_s(known)):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_after, known.has_ended, nursery.cancel_scope)
                await context.hangup.wait()
                is_gone = True
                nursery.cancel_scope.cancel()
        raise ClientGoneError(_reason(known)) if is_gone else UnanswerableError(_reason(known))

    async def _refused_or_handled(
        self, striking: Sequence[RuleInForce], api: Api, request: Message, context: RequestContext
    ) -> Message | None:
        """Return the handler's response, except for the entries that the rules refuse before the handler runs."""
        rules = [known.rule for known in striking if known.rule.action is Action.ERROR]
        cls, version = response_class(api.key), context.api_version
        whole = next((rule for rule in rules if not rule.names_places), None)
        if not rules:
            return await result_of(super().respond(api, request, context), context.hangup)
        if whole is not None and has_top_level_error(cls, version):
            return cls(error_code=int(whole.error))
        if isinstance(request, FetchRequest):
            return await self._refused_fetch(striking, api, request, context)
        if api.changes_nothing:
            response = await result_of(super().respond(api, request, context), context.hangup)
            return None if response is None else self._with_errors(striking, response, context)
        if whole is not None:
            return self._unless_unanswered(refused(request, cls, version, whole.error, EXPLANATION), request, context)
        return await self._refused_in_part(rules, api, request, context)

    async def _refused_fetch(
        self, striking: Sequence[RuleInForce], api: Api, request: FetchRequest, context: RequestContext
    ) -> Message | None:
        """Answer a fetch without waiting for records, as a broker does that has an error to report."""
        request.max_wait_ms = 0
        response = await result_of(super().respond(api, request, context), context.hangup)
        if not isinstance(response, FetchResponse) or response.error_code:
            return response
        self._with_errors(striking, response, context)
        for rule in (known.rule for known in striking if known.rule.names_places):
            if rule.action is Action.ERROR:
                refuse_silent_partitions(response, self._session_of(request), rule)
        return response

    async def _refused_in_part(
        self, rules: Sequence[FaultRule], api: Api, request: Message, context: RequestContext
    ) -> Message | None:
        cls, version = response_class(api.key), context.api_version
        refusals = []
        for rule in rules:
            part = take_out(request, rule.strikes_place, self._topic_name)
            if part is not None:
                refusals.append(refused(part, cls, version, rule.error, EXPLANATION))
        response = (
            cls()
            if refusals and is_empty(request)
            else await result_of(super().respond(api, request, context), context.hangup)
        )
        if response is not None:
            for refusal in refusals:
                merge(response, refusal)
        return self._unless_unanswered(response, request, context)

    def _with_errors(self, striking: Sequence[RuleInForce], response: Message, context: RequestContext) -> Message:
        """Return the response with the errors of the rules in it."""
        cls, version = type(response), context.api_version
        for rule in (known.rule for known in striking if known.rule.action is Action.ERROR):
            if not rule.names_places and has_top_level_error(cls, version):
                return cls(error_code=int(rule.error))
            layout = layout_of(cls, version)
            refuse_entries(response, layout, rule.error, _hits(rule), self._topic_name, message=EXPLANATION)
        return response

    def _unless_unanswered(self, response: Message | None, request: Message, context: RequestContext) -> Message | None:
        """Return the response, or close the connection of a producer with acks=0, as Kafka does to report an error."""
        if isinstance(request, ProduceRequest) and request.acks == 0:
            context.closing = True
            return None
        return response


async def _cancel_after(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _is_spared(request: Message, context: RequestContext) -> bool:
    """Return whether a request is exempt from rules: it removes rules (perhaps forwarded), or used no network."""
    if not context.listener_name:
        return True
    if isinstance(request, EnvelopeRequest):
        with suppress(DecodeError):
            return parse_header(memoryview(request.request_data)).client_id == SPARED_CLIENT_ID
    return context.client_id == SPARED_CLIENT_ID


def _is_handshake(key: AnyApiKey, peer: int | None) -> bool:
    """Return whether a broker only begins a connection, over which it may forward exempt requests."""
    return key is ApiKey.API_VERSIONS and peer is not None


def _hits(rule: FaultRule) -> Hits:
    """Return a test for the entries that an error rule matches: the places of the rule, or all if it has none."""
    if rule.names_places:
        return lambda topic, partition: (topic is not None) and rule.strikes_place(topic, partition)
    return lambda topic, partition: True


def _is_meant(rule: FaultRule, key: AnyApiKey, peer: int | None, context: RequestContext) -> bool:
    def is_one_of(wanted: Collection[object], value: object) -> bool:
        return not wanted or value in wanted

    return (
        is_one_of(rule.apis, key)
        and is_one_of(rule.brokers, peer)
        and (not rule.clients or fits(rule.clients, context.client_id or ""))
        and (not rule.listeners or fits(rule.listeners, context.listener_name))
    )


def _sending_broker(request: Message, context: RequestContext) -> int | None:
    """Return the id of the broker that sent the request, if this connection has revealed it."""
    client = context.client
    told = max((_value_at(request, path) for path in sender_fields(type(request))), default=-1)
    if told >= 0:
        client.peer_broker_id = told
    if client.peer_broker_id is None and (named := BROKERS_CLIENT_ID.fullmatch(context.client_id or "")):
        return int(named[1] or named[2])
    return client.peer_broker_id


def _value_at(request: Message, path: Sequence[str]) -> int:
    value: Any = request
    for name in path:
        value = getattr(value, name)
    return int(value)


def _reason(known: RuleInForce) -> str:
    return f"fault rule {known.name}: {known.text}"
