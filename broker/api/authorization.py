"""The checks of rights that the rows of the table of APIs list, made before the handler runs.

Only brokers with an authorizer use this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any
from uuid import UUID

from ...protocol.acls import AclResourceType
from ...protocol.apis import response_class
from ...protocol.field_meanings import field_meanings, fields_of
from ...protocol.message_places import is_topic_list
from ...protocol.refusals import merge, refused, take_out
from ...protocol.schema import Entity, Message
from ..server.outcome import Outcome, then
from .contract import Api, Handler, RequestContext
from .rights import AUTHORIZATION_ERROR


def with_authorization(apis: Mapping[int, Api]) -> Mapping[int, Api]:
    """Return the table of APIs with handlers that check the rights in their rows first."""
    return {
        key: api._replace(handler=_checking(api)) if api.rights or api.topic_operations else api
        for key, api in apis.items()
    }


def _checking(api: Api) -> Handler:
    """Return a handler that refuses clients without the rights in a row, and else calls the row's handler."""

    def respond(request: Message, context: RequestContext) -> Outcome[Any]:
        _check_rights(api, request, context)
        refusals = _take_out_unauthorized(api, request, context) if api.topic_operations else None
        outcome = api.handler(request, context)
        if refusals is None:
            return outcome
        return then(outcome, lambda response: _merged(response, refusals, context))

    return respond


def _check_rights(api: Api, request: Message, context: RequestContext) -> None:
    """Raise BrokerError unless the client has the rights to the request as a whole."""
    for right in api.rights:
        if not right.is_needed(request):
            continue
        *others, operation = right.operations
        name = right.resource_name(request)
        if not any(context.may(other, right.resource_type, name, is_filter=True) for other in others):
            context.authorize(operation, right.resource_type, name)


def _take_out_unauthorized(api: Api, request: Message, context: RequestContext) -> Message | None:
    """Remove the topics that the client may not use; return the refusals of these topics, or None without any."""
    topics, name = _topic_list(type(request))
    names: list[str] = [getattr(topic, name) for topic in getattr(request, topics)]
    if len(names) == 1:
        # Most requests name one topic.
        if all(context.may(operation, AclResourceType.TOPIC, names[0]) for operation in api.topic_operations):
            return None
        denied = set(names)
    else:
        allowed = [context.authorized(operation, AclResourceType.TOPIC, names) for operation in api.topic_operations]
        denied = {name for name in names if not all(name in authorized for authorized in allowed)}
    if not denied:
        return None
    taken = take_out(request, lambda topic, partition: topic in denied, _no_ids)
    assert taken is not None
    return refused(taken, response_class(api.key), context.api_version, *AUTHORIZATION_ERROR[AclResourceType.TOPIC])


@cache
def _topic_list(cls: type[Message]) -> tuple[str, str]:
    """Return the field of a request that lists its topics, and the field of each entry that names the topic."""
    (field,) = [name for name in cls.FIELD_DEFAULTS if is_topic_list(cls, name)]
    structure = field_meanings(cls)[field].structure
    assert structure is not None
    return field, fields_of(structure, Entity.TOPIC_NAME)[0]


def _no_ids(topic_id: UUID) -> str | None:
    """Return no name: requests whose rows have `topic_operations` name their topics."""
    return None


def _merged(response: Message | None, refusals: Message, context: RequestContext) -> Message | None:
    """Add refusals to the handler's response; without a response, close the connection."""
    if response is None:
        context.closing = True
        return None
    merge(response, refusals)
    return response
