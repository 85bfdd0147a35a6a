"""Error codes in the right fields of any API's response: at the top level, or in entries for topics and partitions.

There are two ways. `refuse_entries` changes a response that a handler has returned. For entries that must not reach a
handler, `take_out` removes them from the request, `refused` turns them into a response, and `merge` adds the handler's
response to the rest. Fields are found by their meanings in the schemas, see `protocol/field_meanings.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from .codec_layout import StructLayout
from .errors import ErrorCode
from .field_meanings import field_meanings, fields_of
from .message_places import (
    TopicNameOf,
    carried_fields,
    entries_of,
    first_value,
    is_partition_list,
    is_topic_list,
    layout_of,
    lists_in,
    partition_of,
    topic_of,
)
from .schema import Entity, LengthPrefixed, Message, Struct

Hits: TypeAlias = Callable[[str | None, int | None], bool]
"""A function that returns whether a rule matches a topic and partition.

(topic, None) is a whole topic, (None, None) any other entry.
"""

ERROR_MESSAGE = "error_message"
RECORDS = LengthPrefixed("records")
SUBJECTS = (
    Entity.TOPIC_NAME,
    Entity.PARTITION_INDEX,
    Entity.TOPIC_ID,
    Entity.COORDINATOR_KEY,
    Entity.GROUP_ID,
    Entity.TRANSACTIONAL_ID,
    Entity.PRODUCER_ID,
    Entity.RESOURCE_TYPE,
    Entity.RESOURCE_NAME,
    Entity.CLIENT_QUOTA_ENTITY,
    Entity.SCRAM_USER_NAME,
)
"""The meanings of fields that identify an entry: a response repeats them from its request."""
UNKNOWN = -1


def has_top_level_error(cls: type[Message], version: int) -> bool:
    """Return whether this version of a response has a top-level error field."""
    return error_field(layout_of(cls, version)) is not None


def error_field(layout: StructLayout) -> str | None:
    """Return the field of a structure that says whether it failed; None if its version carries no error code."""
    error_codes = fields_of(layout.cls, Entity.ERROR_CODE)
    return next((field.name for field in carried_fields(layout) if field.name in error_codes), None)


def refuse_entries(
    struct: Struct,
    layout: StructLayout,
    code: ErrorCode,
    hits: Hits,
    name_of: TopicNameOf,
    topic: str | None = None,
    *,
    message: str | None = None,
) -> None:
    """Replace each matching entry of a response, in place, by one that has only ``code`` and ``message``."""
    for field in carried_fields(layout):
        entries, entry_layout = getattr(struct, field.name), entries_of(field)
        if entry_layout is None or not entries:
            continue
        is_topics = is_topic_list(layout.cls, field.name)
        is_partitions = is_partition_list(layout.cls, field.name)
        for position, entry in enumerate(entries):
            entry_topic = topic_of(entry, name_of) if is_topics else topic
            partition = partition_of(entry) if is_partitions else None
            if error_field(entry_layout) is not None and hits(entry_topic, partition):
                entries[position] = _refused_entry(entry, entry_layout, code, message)
            else:
                refuse_entries(entry, entry_layout, code, hits, name_of, entry_topic, message=message)


def take_out(request: Struct, hits: Hits, name_of: TopicNameOf, topic: str | None = None) -> Struct | None:
    """Remove the matching topics and partitions from a request; return a request with only these, or None."""
    taken: dict[str, list[Any]] = {}
    for name, entries in lists_in(request):
        kept: list[Any] = []
        out: list[Any] = []
        is_topics = is_topic_list(type(request), name)
        is_partitions = topic is not None and is_partition_list(type(request), name)
        for entry in entries:
            entry_topic = topic_of(entry, name_of) if is_topics else topic
            if (is_topics or is_partitions) and hits(entry_topic, partition_of(entry) if is_partitions else None):
                out.append(entry)
                continue
            part = take_out(entry, hits, name_of, entry_topic) if isinstance(entry, Struct) else None
            if part is not None:
                out.append(part)
            if part is None or any(getattr(entry, inside) for inside, _ in lists_in(part)):
                kept.append(entry)
        if out:
            entries[:] = kept
            taken[name] = out
    if not taken:
        return None
    values: dict[str, Any] = {name: getattr(request, name) for name in request.FIELD_DEFAULTS}
    values.update({name: [] for name, _ in lists_in(request)})
    return type(request)(**{**values, **taken})


def is_empty(request: Struct) -> bool:
    """Return whether a request has no entries left after some were removed."""
    return not any(True for _ in lists_in(request))


def refused(request: Struct, cls: type[Message], version: int, code: ErrorCode, message: str | None = None) -> Message:
    """Return a response that refuses every entry of a request, without a top-level error; see `has_top_level_error`."""
    response = _refused_like(request, layout_of(cls, version), code, message, is_root=True)
    assert isinstance(response, Message)
    return response


def merge(response: Struct, other: Struct) -> None:
    """Add the entries of another response of the same API; entries of the same topic are merged."""
    for name, entries in lists_in(other):
        own: list[Any] = getattr(response, name) or []
        known = {_identity(entry): entry for entry in own}
        for entry in entries:
            same = known.get(_identity(entry))
            if same is not None and isinstance(entry, Struct) and any(True for _ in lists_in(entry)):
                merge(same, entry)
            else:
                own.append(entry)
        setattr(response, name, own)


def _refused_like(
    request: object, layout: StructLayout, code: ErrorCode, message: str | None, *, is_root: bool = False
) -> Struct:
    entry = _refused_entry(request, layout, ErrorCode.NONE if is_root else code, message)
    for field in carried_fields(layout):
        entry_layout = entries_of(field)
        if entry_layout is not None and isinstance(request, Struct) and _tells_errors(entry_layout):
            sources = _counterparts(request, layout.cls, field.name)
            setattr(entry, field.name, [_refused_like(source, entry_layout, code, message) for source in sources])
    return entry


def _counterparts(request: Struct, cls: type[Struct], name: str) -> list[Any]:
    """Return the entries of a request that correspond to the entries of a list in the response."""
    lists = list(lists_in(request))
    if is_topic_list(cls, name):
        found = [entries for own, entries in lists if is_topic_list(type(request), own)]
        if not found:
            # The request of AlterReplicaLogDirs groups its topics by log directory, the response does not.
            found = [
                _counterparts(entry, cls, name) for _, all_ in lists for entry in all_ if isinstance(entry, Struct)
            ]
        return [entry for entries in found for entry in entries]
    if is_partition_list(cls, name):
        return [entry for own, entries in lists if is_partition_list(type(request), own) for entry in entries]
    return [entry for _, entries in lists for entry in entries if not isinstance(entry, bytes)]


def _refused_entry(source: object, layout: StructLayout, code: ErrorCode, message: str | None) -> Struct:
    """Return an entry with the identity of ``source``, ``code`` and ``message``, and defaults in all other fields."""
    values: dict[str, Any] = {}
    carried = {field.name: field for field in carried_fields(layout)}
    for entity in SUBJECTS:
        target = next((name for name in fields_of(layout.cls, entity) if name in carried), None)
        given = _subject(source, entity, layout.cls, target)
        if target is not None and given is not None:
            values[target] = given
    meanings = field_meanings(layout.cls)
    values.update({name: UNKNOWN for name in carried if meanings[name].is_minus_one_on_error})
    values.update({name: b"" for name, field in carried.items() if field.wire == RECORDS})
    error_code = error_field(layout)
    if error_code is not None:
        values[error_code] = int(code)
        if code and ERROR_MESSAGE in carried:
            values[ERROR_MESSAGE] = message
    return layout.cls(**values)


def _subject(source: object, entity: Entity, cls: type[Struct], target: str | None) -> Any:
    """Return what names the entity in an entry of a request: the entry itself where it is no structure."""
    if isinstance(source, Struct):
        return first_value(source, entity)
    return source if target is not None and type(cls.FIELD_DEFAULTS[target]) is type(source) else None


def _tells_errors(layout: StructLayout) -> bool:
    """Return whether entries of this type, or entries inside of them, have an error field."""
    if error_field(layout) is not None:
        return True
    inside = (entries_of(field) for field in carried_fields(layout))
    return any(entries is not None and _tells_errors(entries) for entries in inside)


def _identity(entry: object) -> object:
    if not isinstance(entry, Struct):
        return entry
    subjects = (name for entity in SUBJECTS for name in fields_of(type(entry), entity))
    return tuple(repr(getattr(entry, name)) for name in subjects)
