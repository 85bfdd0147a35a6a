"""The list of a topic's records: where it begins, the way it goes, and its next page."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ...client.wire.offset_lookup import EARLIEST, LATEST
from .records import Budget, FoundRecord, Search, Stretch
from .site import RefusedError, Visit
from .units import parse_time_ms

if TYPE_CHECKING:
    from ...client.wire.cluster import TopicMetadata
    from .sources import Sources

STARTS = ("newest", "oldest", "offset", "time")
LIMITS = (25, 50, 100, 200)
MOST_PARTITIONS = 100
"""Most partitions that are read for one page."""
SEARCH_BYTES = 64 << 20
SEARCH_S = 3.0
"""Bytes and seconds after which a search ends, with a link to continue."""


@dataclass(frozen=True, slots=True)
class BrowseFields:
    """The fields of the form above the list."""

    partition: int | None
    start: str
    at: str
    text: str
    key: str
    key_format: str
    value_format: str
    limit: int
    with_control: bool
    follow: bool
    cursor: str

    def query(self, **changes: object) -> dict[str, object]:
        """Return the query of a link to the same list with changes; an empty or missing field is left out."""
        fields: dict[str, object] = {
            "partition": self.partition,
            "start": self.start if self.start != STARTS[0] else None,
            "at": self.at,
            "text": self.text,
            "key": self.key,
            "key_format": self.key_format if self.key_format != "auto" else None,
            "value_format": self.value_format if self.value_format != "auto" else None,
            "limit": self.limit if self.limit != LIMITS[1] else None,
            "control": "1" if self.with_control else None,
            "follow": "1" if self.follow else None,
        }
        return {**fields, **changes}


@dataclass(frozen=True, slots=True)
class Browsed:
    """A page of records."""

    records: list[FoundRecord]
    newest_first: bool
    cursor: str | None
    """The start of the next page; None if there are no more records."""
    searched: int
    """Offsets that were searched."""
    remaining: int
    """Offsets that a next page would search."""
    skipped_partitions: int
    """Partitions beyond `MOST_PARTITIONS`, and those without a leader."""


def parse_fields(visit: Visit) -> BrowseFields:
    """Return the fields of a visit. Raises RefusedError."""
    start = visit.text("start") or STARTS[0]
    if start not in STARTS:
        raise RefusedError(f"start must be one of {', '.join(STARTS)}")
    limit = visit.number("limit", LIMITS[1])
    partition = visit.number("partition", -1, least=-1, most=2**31 - 1)
    return BrowseFields(
        partition=None if partition < 0 else partition,
        start=start,
        at=visit.text("at"),
        text=visit.text("text"),
        key=visit.fields.get("key", ""),
        key_format=visit.text("key_format") or "auto",
        value_format=visit.text("value_format") or "auto",
        limit=limit if limit in LIMITS else LIMITS[1],
        with_control=visit.is_set("control"),
        follow=visit.is_set("follow"),
        cursor=visit.text("cursor"),
    )


async def browse(sources: Sources, topic: TopicMetadata, fields: BrowseFields) -> Browsed:
    """Return the page of records that the fields ask for. Raises RefusedError, BrokerError."""
    admin = sources.admin
    led = [state.index for state in topic.partitions if state.leader is not None]
    if fields.partition is not None:
        if fields.partition >= len(topic.partitions):
            raise RefusedError(f"the topic has the partitions 0 to {len(topic.partitions) - 1}")
        led = [index for index in led if index == fields.partition]
    chosen = led[:MOST_PARTITIONS]
    places = [(topic.name, index) for index in chosen]
    starts = {place[1]: offset for place, offset in (await admin.offsets_since(places, EARLIEST)).items()}
    ends = {place[1]: offset for place, offset in (await admin.offsets_since(places, LATEST)).items()}
    newest_first = fields.start == STARTS[0]
    froms = await _froms(sources, topic.name, fields, starts, ends)
    froms |= _parse_cursor(fields.cursor, chosen)
    search = Search(_searched_bytes(fields.key), _lowered(_searched_bytes(fields.text)), fields.with_control)
    budget = Budget(SEARCH_BYTES, SEARCH_S)
    stretches: dict[int, Stretch] = {}
    for index in chosen:
        at = min(max(froms[index], starts[index]), ends[index])
        low, high = (starts[index], at) if newest_first else (at, ends[index])
        read = sources.records.backward if newest_first else sources.records.forward
        stretches[index] = await read(topic.name, index, low, high, search, fields.limit, budget)
    records, nexts = merge(stretches, fields.limit, newest_first=newest_first)
    remaining = sum(
        max(0, nexts[index] - starts[index] if newest_first else ends[index] - nexts[index]) for index in chosen
    )
    return Browsed(
        records=records,
        newest_first=newest_first,
        cursor=",".join(f"{index}:{offset}" for index, offset in nexts.items()) if remaining else None,
        searched=sum(stretch.high - stretch.low for stretch in stretches.values()),
        remaining=remaining,
        skipped_partitions=len(topic.partitions) - len(chosen) if fields.partition is None else 1 - len(chosen),
    )


async def _froms(
    sources: Sources, topic: str, fields: BrowseFields, starts: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, int]:
    """Return the offset of each partition at which the first page begins. Raises RefusedError."""
    if fields.start == "newest":
        return dict(ends)
    if fields.start == "oldest" or not fields.at:
        return dict(starts)
    if fields.start == "offset":
        try:
            return dict.fromkeys(starts, int(fields.at))
        except ValueError:
            raise RefusedError(f"an offset is a whole number, not {fields.at[:100]!r}") from None
    try:
        time_ms = parse_time_ms(fields.at)
    except (ValueError, OverflowError):
        raise RefusedError(
            f"a time is written 2026-01-31T12:00 (UTC), or in milliseconds since 1970, not {fields.at[:100]!r}"
        ) from None
    found = await sources.admin.offsets_since([(topic, index) for index in starts], max(time_ms, 0))
    return {place[1]: offset for place, offset in found.items()}


def _parse_cursor(cursor: str, chosen: Sequence[int]) -> dict[int, int]:
    """Return offsets by partition. Raises RefusedError."""
    froms: dict[int, int] = {}
    for piece in filter(None, cursor.split(",")[:MOST_PARTITIONS]):
        index, _, offset = piece.partition(":")
        if not (index.isdecimal() and offset.isdecimal()) or len(piece) > 40:
            raise RefusedError("the link to this page is damaged")
        if int(index) in chosen:
            froms[int(index)] = int(offset)
    return froms


def merge(
    stretches: Mapping[int, Stretch], limit: int, *, newest_first: bool
) -> tuple[list[FoundRecord], dict[int, int]]:
    """Return the first records of all partitions by time, and the offset at which each partition continues.

    Records of one partition stay in the order of their offsets, whatever their timestamps are.
    """
    streams = [reversed(stretch.records) if newest_first else iter(stretch.records) for stretch in stretches.values()]
    ordered = heapq.merge(*streams, key=lambda record: record.timestamp_ms, reverse=newest_first)
    records = list(islice(ordered, limit))
    nexts = {}
    for index, stretch in stretches.items():
        shown = sum(record.partition == index for record in records)
        if shown == len(stretch.records):
            nexts[index] = stretch.low if newest_first else stretch.high
        elif newest_first:
            nexts[index] = stretch.records[-shown - 1].offset + 1
        else:
            nexts[index] = stretch.records[shown].offset
    return records, nexts


def _searched_bytes(text: str) -> bytes | None:
    """Return the bytes to search for: ``0x`` begins hexadecimal digits, all else is text. Raises RefusedError."""
    if not text:
        return None
    if text.lower().startswith("0x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            raise RefusedError(f"{text[:100]!r} has digits that are not hexadecimal") from None
    return text.encode()


def _lowered(data: bytes | None) -> bytes | None:
    return None if data is None else data.lower()
