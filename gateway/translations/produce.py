"""Produce v0 to v2: sets of format v0 and v1 become one batch of format v2 each, as Kafka's leaders made of them.

Source: Kafka 3.9 `LogValidator.validateMessagesAndAssignOffsets`: records keep their order and timestamps (those of v0
have none, -1), get offsets 0, 1, 2 ..., and a compressed set keeps its codec. The broker that appends the batch checks
it by the rules of the topic.
"""

from __future__ import annotations

from functools import partial

import trio

from ...broker.server.worker_threads import run_in_worker
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ...protocol.records.convert import ALL_OFFSETS, up_convert
from ...protocol.records.offsets_cy import assign_offsets
from ...protocol.records.validation import AppendRules, validate
from .contract import Ask

RULES = AppendRules(max_message_bytes=2**31 - 1)
"""Rules of the format alone; those of the topic are upstream's."""
ONE_BATCH_BYTES = 2**31 - 1
CONVERTED_HERE_BYTES = 32 * 1024
"""Larger sets are converted in a worker thread."""
NO_LEADER_EPOCH = -1
NO_OFFSET = -1

Outcome = PartitionProduceResponse | None
"""The answer for a partition that upstream is not asked about; None for one that is."""


async def translate_produce(
    request: ProduceRequest, _version: int, ask: Ask, *, limiter: trio.CapacityLimiter
) -> ProduceResponse | None:
    """Convert each partition's set, produce the batches, and answer in the order of the request.

    A set that breaks its format is refused as Kafka 3.9 refuses it, and the others are produced.
    """
    outcomes = [
        (topic.name, [(part.index, await _convert(part, limiter)) for part in topic.partition_data])
        for topic in request.topic_data
    ]
    refused = {(name, index) for name, parts in outcomes for index, outcome in parts if outcome is not None}
    topics = [
        TopicProduceData(
            name=topic.name,
            partition_data=[part for part in topic.partition_data if (topic.name, part.index) not in refused],
        )
        for topic in request.topic_data
    ]
    request.topic_data = [topic for topic in topics if topic.partition_data]
    response = ProduceResponse()
    if request.topic_data:
        response = await ask(request)
    if request.acks == 0:
        return None if not _has_error(outcomes) else ProduceResponse()
    if not refused:
        return response
    produced = {(topic.name, part.index): part for topic in response.responses for part in topic.partition_responses}
    missing = ErrorCode.UNKNOWN_SERVER_ERROR
    response.responses = [
        TopicProduceResponse(
            name=name,
            partition_responses=[
                outcome or produced.get((name, index)) or _failed(index, missing) for index, outcome in parts
            ],
        )
        for name, parts in outcomes
    ]
    return response


def _has_error(outcomes: list[tuple[str, list[tuple[int, Outcome]]]]) -> bool:
    return any(outcome is not None and outcome.error_code for _, parts in outcomes for _, outcome in parts)


async def _convert(part: PartitionProduceData, limiter: trio.CapacityLimiter) -> Outcome:
    """Convert a partition's records in place; return the answer if there is nothing to produce."""
    records = memoryview(part.records or b"")
    try:
        if len(records) > CONVERTED_HERE_BYTES:
            batch = await run_in_worker(partial(one_batch, records), limiter=limiter)
        else:
            batch = one_batch(records)
    except BrokerError as error:
        return _failed(part.index, error.code)
    if batch is None:
        return PartitionProduceResponse(index=part.index, base_offset=NO_OFFSET)
    part.records = batch
    return None


def one_batch(records: memoryview) -> memoryview | None:
    """Return a message set of any format as one batch of format v2; None if it has no complete message.

    Raises BrokerError as `validate`.
    """
    # RULES have no limits for timestamps, so that the current time is not used.
    produced = validate(records, RULES, now_ms=0)
    if not produced.batches:
        return None
    # Offsets are written into the set, which lies in the client's receive buffer.
    produced.data = memoryview(bytearray(produced.data))
    assign_offsets(produced, 0, leader_epoch=NO_LEADER_EPOCH)
    (converted,) = up_convert(produced.data, ALL_OFFSETS, batch_bytes=ONE_BATCH_BYTES)
    return memoryview(converted.data)


def _failed(index: int, code: ErrorCode) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=code, base_offset=NO_OFFSET)
