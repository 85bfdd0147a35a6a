"""Groups: the list with lag, and of each group its members and offsets; resetting offsets, deletion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...broker.http.messages import HttpResponse
from ...client.wire.offset_lookup import EARLIEST, LATEST
from ...protocol.errors import BrokerError
from .paging import Paging
from .site import ANY, RefusedError, Site, Visit, link
from .units import parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...client.admin import Admin, GroupMember, GroupOverview
    from ...protocol.messages.list_groups import ListedGroup
    from ...protocol.topic_partition import AnyTopicPartition
    from .sources import Sources

TARGETS = ("earliest", "latest", "offset", "time", "shift")


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """A partition that a group reads: the committed offset, the log's end, and the member that reads it."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        """The number of offsets that the group has yet to read."""
        return max(0, self.end - self.committed) if self.end is not None and self.committed is not None else None


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in the list."""

    listed: ListedGroup
    member_count: int
    topics: list[str]
    lag: int | None


def add_group_pages(site: Site, sources: Sources) -> None:
    """Add the pages about groups to the site."""
    admin = sources.admin

    @site.get("groups")
    async def list_groups(visit: Visit) -> HttpResponse:
        wanted = visit.text("filter").lower()
        groups = [group for group in await admin.list_groups() if wanted in group.group_id.lower()]
        groups.sort(key=lambda group: group.group_id)
        paging = Paging(visit.number("page", 1, least=1), len(groups))
        rows = [await _row(admin, group) for group in paging.cut(groups)]
        return site.page("groups.html", visit, rows=rows, paging=paging, fields={"filter": visit.text("filter")})

    @site.get("groups", ANY)
    async def show_group(visit: Visit) -> HttpResponse:
        group = await admin.group_overview(visit.names[0])
        rows = await _offsets(admin, group)
        paging = Paging(visit.number("page", 1, least=1), len(rows))
        plan = None
        if visit.text("target"):
            plan = await _plan(admin, group.group_id, visit)
        return site.page(
            "group.html",
            visit,
            group=group,
            rows=paging.cut(rows),
            lag=sum(row.lag or 0 for row in rows),
            topics=sorted({row.topic for row in rows}),
            paging=paging,
            plan=plan,
            fields={name: visit.text(name) for name in ("target", "at", "topic")},
        )

    @site.post("groups", ANY, "offsets")
    async def reset(visit: Visit) -> HttpResponse:
        group_id = visit.names[0]
        plan = await _plan(admin, group_id, visit)
        await admin.alter_group_offsets(group_id, {place: new for place, (_, new) in plan.items()})
        return site.done(f"The offsets of {len(plan)} partitions were set.", link("groups", group_id))

    @site.post("groups", ANY, "delete")
    async def delete(visit: Visit) -> HttpResponse:
        group_id = visit.names[0]
        if visit.text("confirmation") != group_id:
            raise RefusedError("to delete the group, type its name")
        await admin.delete_groups([group_id])
        return site.done(f"Group {group_id} was deleted.", link("groups"))


async def _row(admin: Admin, listed: ListedGroup) -> GroupRow:
    try:
        group = await admin.group_overview(listed.group_id)
        rows = await _offsets(admin, group)
    except BrokerError:
        # A group that is being loaded or was deleted since is listed without its details.
        return GroupRow(listed, 0, [], None)
    return GroupRow(listed, len(group.members), sorted({row.topic for row in rows}), sum(row.lag or 0 for row in rows))


async def _offsets(admin: Admin, group: GroupOverview) -> list[OffsetRow]:
    committed = await admin.group_offsets(group.group_id)
    readers = {place: member for member in group.members for place in member.partitions}
    places = sorted(committed.keys() | readers.keys())
    ends = await admin.offsets_since(await _existing(admin, places), LATEST)
    return [OffsetRow(*place, committed.get(place), ends.get(place), readers.get(place)) for place in places]


async def _existing(admin: Admin, places: Iterable[AnyTopicPartition]) -> list[AnyTopicPartition]:
    """Return the partitions that exist and have a leader."""
    led = {
        (topic.name, state.index)
        for topic in await admin.describe_topics()
        for state in topic.partitions
        if state.leader is not None
    }
    return [place for place in places if place in led]


async def _plan(admin: Admin, group_id: str, visit: Visit) -> dict[AnyTopicPartition, tuple[int | None, int]]:
    """Return the present and the new offset of each partition. Raises RefusedError."""
    target, topic = visit.text("target"), visit.text("topic")
    committed = await admin.group_offsets(group_id)
    places = await _existing(admin, committed)
    if topic:
        (described,) = await admin.describe_topics([topic])
        places = [(topic, state.index) for state in described.partitions if state.leader is not None]
    if not places:
        raise RefusedError("the group has no offsets: choose a topic")
    if target == "earliest":
        new = await admin.offsets_since(places, EARLIEST)
    elif target == "latest":
        new = await admin.offsets_since(places, LATEST)
    elif target == "offset":
        new = await admin.within_log(dict.fromkeys(places, visit.number("at", 0)))
    elif target == "shift":
        by = visit.number("at", 0, least=-(2**62), most=2**62)
        new = await admin.within_log({place: committed[place] + by for place in places if place in committed})
    elif target == "time":
        try:
            new = await admin.offsets_since(places, max(0, parse_time_ms(visit.text("at"))))
        except (ValueError, OverflowError):
            raise RefusedError("a time is written 2026-01-31T12:00 (UTC), or in milliseconds since 1970") from None
    else:
        raise RefusedError(f"target must be one of {', '.join(TARGETS)}")
    return {place: (committed.get(place), offset) for place, offset in sorted(new.items())}
