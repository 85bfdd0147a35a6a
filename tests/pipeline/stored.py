"""Readers of the records that a broker has stored."""

from __future__ import annotations

from typing import Any

from gregor.pipeline.columns.read_options import ReadOptions
from gregor.pipeline.columns.record_batches import ANY_TIME
from gregor.pipeline.columns.schemas import Mode
from gregor.pipeline.kafka.fetching import FetchOptions, FetchRange, fetch_pieces, fetch_rows
from gregor.pipeline.kafka.wire import WireSettings
from gregor.protocol.records.batches import iter_batches
from tests.broker_process import BrokerProcess
from tests.pipeline.archive_rows import end_offsets


def records_of(broker: BrokerProcess, topic: str, partition: int) -> list[dict[str, Any]]:
    """Return the committed records as a consumer gets them."""
    options = ReadOptions(Mode.RECORDS, 1000, True, True, False, ANY_TIME, True)
    rows: list[dict[str, Any]] = []
    wanted = FetchRange(topic, partition, 0, end_offsets(broker, topic)[partition])
    for batch in fetch_rows(wanted, fetch_options(broker), options):
        rows += batch.to_pylist()
    return rows


def fetch_options(broker: BrokerProcess) -> FetchOptions:
    """Return options for committed records only."""
    settings = WireSettings.from_options({"kafka.bootstrap.servers": broker.bootstrap})
    return FetchOptions(settings, read_committed=True)


def contents(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the parts of records that a replay keeps."""
    return [(row["key"], row["value"], row["timestamp"], row["headers"]) for row in rows]


def stored_batches(broker: BrokerProcess, topic: str, partition: int) -> list[tuple[Any, ...]]:
    """Return each batch's offsets, codec and records as bytes."""
    wanted = FetchRange(topic, partition, 0, end_offsets(broker, topic)[partition])
    return [
        (batch.base_offset, batch.last_offset, batch.codec, bytes(batch.view[61:]))
        for piece in fetch_pieces(wanted, fetch_options(broker))
        for batch in iter_batches(piece.stored)
        if not (piece.hides_batch and piece.hides_batch(batch)) and not batch.is_control
    ]
