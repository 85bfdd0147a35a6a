"""Error codes in the right fields of any API's response: at the top level, or in entries for topics and partitions.

There are two ways. `refuse_entries` changes a response that a handler has returned. For entries that must not reach a
handler, `take_out` removes them from the request, `refused` turns them into a response, and `merge` adds the handler's
response to the rest. Field names are those of `message_places.py`, not of single APIs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ...protocol.codec_layout import StructLayout
from ...protocol.errors import ErrorCode
from ...protocol.schema import Message, Struct
from .message_places import (
    PARTITION_FIELDS,
    PARTITION_LISTS,
    TOPIC_FIELDS,
    TOPIC_ID,
    TopicName,
    carried_fields,
    entries_of,
    is_topic_list,
    layout_of,
    lists_in,
    partition_of,
    topic_of,
)

Hits: TypeAlias = Callable[[str | None, int | None], bool]
"""Tells whether a rule matches a topic and partition; (topic, None) is a whole topic, (None, None) anything else."""

ERROR_FIELDS = ("error_code", "partition_error_code")
RECORDS = "records"
ERROR_MESSAGE = "error_message"
OTHER_IDENTITIES = (
    "key",
    "group_id",
    "transactional_id",
    "producer_id",
    "resource_type",
    "resource_name",
    "entity",
    "user",
)
SYNONYMS = (TOPIC_FIELDS, PARTITION_FIELDS, *((name,) for name in (TOPIC_ID, *OTHER_IDENTITIES)))
"""Fields that identify an entry, grouped by their meaning."""
IDENTITIES = frozenset(name for names in SYNONYMS for name in names)
UNKNOWN = -1
KNOWN_IF_ALL_IS_WELL = (
    "base_offset",
    "committed_offset",
    "end_offset",
    "high_watermark",
    "last_stable_offset",
    "leader_id",
    "log_append_time_ms",
    "log_start_offset",
    "low_watermark",
    "offset",
    "timestamp",
)
"""Numbers that are -1 in an entry with an error."""


def has_top_level_error(cls: type[Message], version: int) -> bool:
    """Return whether this version of a response has a top-level error field."""
    return any(field.name in ERROR_FIELDS for field in carried_fields(layout_of(cls, version)))


def refuse_entries(
    struct: Struct,
    layout: StructLayout,
    code: ErrorCode,
    hits: Hits,
    name_of: TopicName,
    topic: str | None = None,
    *,
    message: str | None = None,
) -> None:
    """Replace each matching entry of a response, in place, by one that has only ``code`` and ``message``."""
    for field in carried_fields(layout):
        entries, entry_layout = getattr(struct, field.name), entries_of(field)
        if entry_layout is None or not entries:
            continue
        is_topics = is_topic_list(field.name, entry_layout.cls)
        for position, entry in enumerate(entries):
            entry_topic = topic_of(entry, name_of) if is_topics else topic
            partition = partition_of(entry) if field.name in PARTITION_LISTS else None
            if _error_field(entry_layout) is not None and hits(entry_topic, partition):
                entries[position] = _refused_entry(entry, entry_layout, code, message)
            else:
                refuse_entries(entry, entry_layout, code, hits, name_of, entry_topic, message=message)


def take_out(request: Struct, hits: Hits, name_of: TopicName, topic: str | None = None) -> Struct | None:
    """Remove the matching topics and partitions from a request; return a request with only these, or None."""
    taken: dict[str, list[Any]] = {}
    for name, entries in lists_in(request):
        kept: list[Any] = []
        out: list[Any] = []
        is_topics = is_topic_list(name, type(entries[0]))
        is_partitions = topic is not None and name in PARTITION_LISTS
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
            sources = _counterparts(request, field.name, entry_layout)
            setattr(entry, field.name, [_refused_like(source, entry_layout, code, message) for source in sources])
    return entry


def _counterparts(request: Struct, name: str, layout: StructLayout) -> list[Any]:
    """Return the entries of a request that correspond to the entries of a list in the response."""
    lists = list(lists_in(request))
    if is_topic_list(name, layout.cls):
        found = [entries for name, entries in lists if is_topic_list(name, type(entries[0]))]
        if not found:
            # AlterReplicaLogDirs sorts its topics by log directory, and the answer does not.
            found = [
                _counterparts(entry, name, layout) for _, all_ in lists for entry in all_ if isinstance(entry, Struct)
            ]
        return [entry for entries in found for entry in entries]
    if name in PARTITION_LISTS:
        return [entry for name, entries in lists if name in PARTITION_LISTS for entry in entries]
    return [entry for _, entries in lists for entry in entries if not isinstance(entry, bytes)]


def _refused_entry(source: object, layout: StructLayout, code: ErrorCode, message: str | None) -> Struct:
    """Return an entry with the identity of ``source``, ``code`` and ``message``, and defaults in all other fields."""
    values: dict[str, Any] = {}
    names = {field.name for field in carried_fields(layout)}
    for synonyms in SYNONYMS:
        target = next((name for name in synonyms if name in names), None)
        given = next((value for name in synonyms if (value := getattr(source, name, None)) is not None), None)
        if target is not None and given is not None:
            values[target] = given
    if not isinstance(source, Struct):
        defaults = layout.cls.FIELD_DEFAULTS
        values.update({name: source for name in names & IDENTITIES if type(defaults[name]) is type(source)})
    values.update(dict.fromkeys(names & set(KNOWN_IF_ALL_IS_WELL), UNKNOWN))
    values.update(dict.fromkeys(names & {RECORDS}, b""))
    error_field = _error_field(layout)
    if error_field is not None:
        values[error_field] = int(code)
        if code and ERROR_MESSAGE in names:
            values[ERROR_MESSAGE] = message
    return layout.cls(**values)


def _error_field(layout: StructLayout) -> str | None:
    return next((field.name for field in carried_fields(layout) if field.name in ERROR_FIELDS), None)


def _tells_errors(layout: StructLayout) -> bool:
    """Return whether entries of this type, or entries inside of them, have an error field."""
    if _error_field(layout) is not None:
        return True
    inside = (entries_of(field) for field in carried_fields(layout))
    return any(entries is not None and _tells_errors(entries) for entries in inside)


def _identity(entry: object) -> object:
    if not isinstance(entry, Struct):
        return entry
    return tuple(repr(getattr(entry, name)) for name in entry.FIELD_DEFAULTS if name in IDENTITIES)
