"""An answer tells of nothing that could still be lost: it waits until what its request wrote is replicated.

Coordinators write into logs that have followers, and go on at once; the task that serves the request waits at its end.
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
"""What clients of a coordinator are told where its log could not do it (Kafka `GroupMetadataManager`)."""


class NotReplicatedError(BrokerError):
    """The handler has done its work, and the logs of others have not followed; the client has to ask again."""


def note_written(partition: Partition, offset: int) -> None:
    """The present request has written the record at ``offset``; nothing to note where there are no followers."""
    written = _written.get()
    if written is not None and partition.role is not None:
        written.append(WrittenRecord(partition, offset, partition.leader_epoch))


async def when_replicated(responding: Awaitable[Response], timeout_s: float) -> Response:
    """The response, once all that was written on the way to it is in the logs of all in-sync replicas.

    Raises BrokerError as the handler does, once that is so too: a refusal tells of what was written as well.
    Raises NotReplicatedError NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE.
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
