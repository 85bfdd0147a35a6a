"""The form with which a user produces a record, also a copy of a stored one."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from ...broker.http.messages import HttpResponse
from ...protocol.errors import BrokerError, ErrorCode
from .outgoing import OutgoingRecord, parse_outgoing, send
from .records import EXCERPT_BYTES
from .site import ANY, RefusedError, Site, Visit, link

if TYPE_CHECKING:
    from ...protocol.records.record import Record
    from .sources import Sources

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def add_produce_pages(site: Site, sources: Sources) -> None:
    """Add the form to the site."""
    admin = sources.admin

    @site.get("topics", ANY, "produce")
    async def show_form(visit: Visit) -> HttpResponse:
        (topic,) = await admin.describe_topics([visit.names[0]])
        outgoing = OutgoingRecord()
        if visit.text("copy"):
            outgoing = await _copied(sources, topic.name, visit)
        return site.page("produce.html", visit, topic=topic, outgoing=outgoing, codecs=CODECS, error=None)

    @site.post("topics", ANY, "produce")
    async def produce(visit: Visit) -> HttpResponse:
        (topic,) = await admin.describe_topics([visit.names[0]])
        outgoing = OutgoingRecord.of_form(visit)
        try:
            sent = await send(admin, topic, parse_outgoing(outgoing), outgoing)
        except (RefusedError, BrokerError) as error:
            # What the user has written must not be lost.
            return site.page(
                "produce.html",
                visit,
                status=HTTPStatus.BAD_REQUEST,
                topic=topic,
                outgoing=outgoing,
                codecs=CODECS,
                error=str(error),
            )
        notice = f"The record is at offset {sent.offset} of partition {sent.partition}."
        target = link("topics", topic.name, "produce") if visit.is_set("again") else link("topics", topic.name)
        return site.done(notice, target)


async def _copied(sources: Sources, topic: str, visit: Visit) -> OutgoingRecord:
    """Return the form's content for another record like the one that ``copy`` names. Raises RefusedError."""
    partition, _, offset = visit.text("copy").partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise RefusedError("copy must be PARTITION:OFFSET")
    found = await sources.records.whole(topic, int(partition), int(offset))
    if found is None:
        raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, visit.text("copy"))
    record: Record = found[1]
    if any(part is not None and len(part) > EXCERPT_BYTES for part in (record.key, record.value)):
        raise RefusedError(f"only records with keys and values of up to {EXCERPT_BYTES} bytes are copied to the form")
    return OutgoingRecord.of_record(record, int(partition))
