"""The progress of a running copy to topics, by the offsets that its tasks commit at the target with their records.

A task tells Spark nothing before it ends, and one task copies a whole partition. But each transaction of a copy commits
the next offset of the source (`sink.exact_copy`), so that the driver can ask the target how far all tasks are, on
whatever machines they run, also with Spark Connect.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ...client import Admin
from ..errors import PipelineError
from ..kafka.clients import bootstrap_of, client_config, run_client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...client.wire.group_offsets import CommittedOffset
    from ...protocol.topic_partition import AnyTopicPartition
    from ..jobs.desk import Desk
    from ..sink.exact_copy import CopyTarget

LOOK_EVERY_S = 2.0


class NoProgress:
    """A display that shows nothing (`jobs.desk.Progress`)."""

    def advance(self, done: int) -> None:
        """Do nothing."""


class CopyProgress:
    """The positions of a copy: of each target, from `begin` (if nothing was copied yet) to `end`, in source offsets.

    All targets are of one cluster and one group. Raises PipelineError if that cluster cannot be asked.
    """

    def __init__(self, ranges: Sequence[tuple[CopyTarget, int, int]]) -> None:
        self._targets = {target.place: target for target, _, _ in ranges}
        self._ends = {target.place: end for target, _, end in ranges}
        self._begins = {target.place: min(begin, end) for target, begin, end in ranges}
        self._begins |= self._committed()

    @contextlib.contextmanager
    def shown(self, desk: Desk) -> Iterator[None]:
        """Show offsets on the desk's progress and in its metrics during the context."""
        total = sum(self._ends[place] - begin for place, begin in self._begins.items())
        over = threading.Event()

        def look() -> None:
            while not over.wait(LOOK_EVERY_S):
                # The copy reports a target that cannot be reached.
                with contextlib.suppress(PipelineError):
                    positions = self._begins | self._committed()
                    self._tell(desk, positions)
                    bar.advance(sum(offset - self._begins[place] for place, offset in positions.items()))

        self._tell(desk, self._begins)
        with desk.progress(total, "offsets") as bar:
            thread = threading.Thread(target=look, daemon=True)
            thread.start()
            try:
                yield
            finally:
                over.set()
                thread.join()

    def _tell(self, desk: Desk, positions: Mapping[AnyTopicPartition, int]) -> None:
        for place, offset in positions.items():
            desk.metrics.position(*place, offset, self._ends[place])

    def _committed(self) -> dict[AnyTopicPartition, int]:
        """Return the committed positions that are this copy's own, none beyond its end."""
        for target in self._targets.values():
            found = run_client(f"group {target.group}", partial(_committed, target, list(self._targets)))
            return {
                place: min(offset.offset, self._ends[place])
                for place, offset in found.items()
                if _purpose_of(offset) == self._targets[place].purpose
            }
        return {}


async def _committed(
    target: CopyTarget, places: Sequence[AnyTopicPartition]
) -> dict[AnyTopicPartition, CommittedOffset]:
    async with Admin(bootstrap_of(target.settings), **client_config(target.settings)) as admin:
        return await admin.committed_offsets(target.group, places)


def _purpose_of(offset: CommittedOffset) -> object:
    try:
        return json.loads(offset.metadata)["purpose"]
    except (ValueError, TypeError, KeyError):
        return None
