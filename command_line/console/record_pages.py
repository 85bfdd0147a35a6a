"""Records of a topic: lists by time, offset and content, single records, and downloads."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import TYPE_CHECKING

from ...broker.http.messages import HttpResponse
from .browsing import BrowseFields, browse, parse_fields
from .records import Excerpt
from .site import ANY, RefusedError, Site, Visit
from .values import FORMATS, Presentation

if TYPE_CHECKING:
    from .sources import Sources

PIECE_BYTES = 65536
LARGEST_SHOWN_BYTES = 262144
"""Bytes of a key or a value that the page of one record shows."""


def add_record_pages(site: Site, sources: Sources) -> None:
    """Add the pages about records to the site."""

    @site.get("topics", ANY)
    async def show_records(visit: Visit) -> HttpResponse:
        name = visit.names[0]
        (topic,) = await sources.admin.describe_topics([name])
        fields = parse_fields(visit)
        browsed = await browse(sources, topic, fields)
        keys, values = _presentations(sources, name, fields)
        headers = Presentation("auto", name, sources.schemas, is_key=False)
        shown = [
            (
                record,
                keys.show(record.key),
                values.show(record.value),
                [(key, headers.show(value)) for key, value in record.headers],
            )
            for record in browsed.records
        ]
        return site.page(
            "records.html", visit, topic=topic, fields=fields, browsed=browsed, shown=shown, formats=FORMATS
        )

    @site.get("topics", ANY, "records", ANY, ANY)
    async def show_record(visit: Visit) -> HttpResponse:
        name, partition, offset = _place(visit)
        found = await sources.records.whole(name, partition, offset)
        if found is None:
            raise RefusedError(f"{name}-{partition} has no record with offset {offset}", HTTPStatus.NOT_FOUND)
        summary, record = found
        fields = parse_fields(visit)
        keys, values = _presentations(sources, name, fields)
        headers = Presentation("auto", name, sources.schemas, is_key=False)
        return site.page(
            "record.html",
            visit,
            topic_name=name,
            record=summary,
            key=keys.show(_shown_part(record.key)),
            value=values.show(_shown_part(record.value)),
            headers=[(key, headers.show(value)) for key, value in summary.headers],
            fields=fields,
            formats=FORMATS,
        )

    @site.get("topics", ANY, "records", ANY, ANY, ANY)
    async def download(visit: Visit) -> HttpResponse:
        name, partition, offset = _place(visit)
        part = visit.names[3]
        found = await sources.records.whole(name, partition, offset)
        if found is None or part not in ("key", "value"):
            raise RefusedError("the record has no bytes to download", HTTPStatus.NOT_FOUND)
        data = found[1].key if part == "key" else found[1].value
        return HttpResponse(
            HTTPStatus.OK,
            _pieces(data or b""),
            "application/octet-stream",
            {"Content-Disposition": f'attachment; filename="{_file_name(name)}-{partition}-{offset}.{part}"'},
        )


def _presentations(sources: Sources, topic: str, fields: BrowseFields) -> tuple[Presentation, Presentation]:
    return (
        Presentation(fields.key_format, topic, sources.schemas, is_key=True),
        Presentation(fields.value_format, topic, sources.schemas, is_key=False),
    )


def _place(visit: Visit) -> tuple[str, int, int]:
    """Return topic, partition and offset of a path. Raises RefusedError."""
    name, partition, offset = visit.names[:3]
    if not (partition.isdecimal() and offset.isdecimal()) or len(partition) > 9 or len(offset) > 18:
        raise RefusedError("there is no such record", HTTPStatus.NOT_FOUND)
    return name, int(partition), int(offset)


def _shown_part(data: bytes | None) -> Excerpt | None:
    return None if data is None else Excerpt(data[:LARGEST_SHOWN_BYTES], len(data))


async def _pieces(data: bytes) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(data), PIECE_BYTES):
        yield data[start : start + PIECE_BYTES]


def _file_name(topic: str) -> str:
    """Return a topic's name without characters that a header could not hold."""
    return "".join(
        character if character.isascii() and (character.isalnum() or character in "._-") else "_" for character in topic
    )
