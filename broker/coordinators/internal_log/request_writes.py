"""The delay of an answer until the records that its request wrote are replicated, so that they cannot be lost.

Coordinators append to logs that have followers and continue at once; the task of the request waits at its end.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextvars import ContextVar
from typing import TypeVar

from ....protocol.errors import BrokerError, ErrorCode
from ...replicas.partition import Partition, WrittenRecord

Response = TypeVar("Response")

_written: ContextVar[list[WrittenRecord] | None] = ContextVar("written", default=None)

TOLD_AS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""The client's errors for records that could not be replicated (Kafka `GroupMetadataManager`)."""


class NotReplicatedError(BrokerError):
    """An error for a request whose records were written but not replicated; the client must retry."""


def note_written(partition: Partition, offset: int) -> None:
    """Record that the present request has written the record at ``offset``, if the partition has followers."""
    written = _written.get()
    if written is not None and partition.role is not None:
        written.append(WrittenRecord(partition, offset, partition.leader_epoch))


async def when_replicated(responding: Awaitable[Response], timeout_s: float) -> Response:
    """Return the response once all in-sync replicas have the records that the handler wrote.

    Raises BrokerError as the handler does, also after replication: a refusal may depend on written records. Raises
    NotReplicatedError NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE.
    """
    written: list[WrittenRecord] = []
    token = _written.set(written)
    try:
        response = await responding
    except BrokerError:
        await _until_replicated(written, timeout_s)
        raise
    finally:
        _written.reset(token)
    await _until_replicated(written, timeout_s)
    return response


async def _until_replicated(written: list[WrittenRecord], timeout_s: float) -> None:
    for record in written:
        try:
            await record.replicated(timeout_s)
        except BrokerError as error:
            raise NotReplicatedError(TOLD_AS.get(error.code, error.code), error.message) from error
