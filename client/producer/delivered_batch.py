"""The part of a producer's batch that the deliveries of its records read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import trio


class DeliveredBatch(Protocol):
    """A batch that records were appended to, pending or finished; see `batch_cy.ProducerBatch`."""

    topic: str
    partition: int
    record_count: int

    @property
    def parts(self) -> tuple[DeliveredBatch, ...]:
        """The batches that replace this one after a split (KIP-126), empty before."""

    @property
    def is_done(self) -> bool:
        """Whether the batch was acknowledged or has failed."""

    @property
    def finished(self) -> trio.Event:
        """An event that is set once the batch is acknowledged, failed or split."""

    @property
    def finished_at(self) -> float:
        """The time of the acknowledgement or failure on trio's clock, in seconds."""

    @property
    def error(self) -> Exception | None:
        """The error of all records that have none of their own; None before a failure."""

    @property
    def record_errors(self) -> Mapping[int, Exception]:
        """The errors of single records (KIP-467), by index in the batch."""

    @property
    def acknowledged_base_offset(self) -> int:
        """The offset of the first record, -1 if the broker has told none."""

    @property
    def acknowledged_append_time(self) -> int:
        """The broker's append time in milliseconds since the epoch, -1 if records keep their own timestamps."""
