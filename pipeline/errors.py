"""The errors of tasks and of planning, with topic, partition and offset wherever there are any."""

from __future__ import annotations

from uuid import UUID

from ..protocol.errors import BrokerError


class PipelineError(Exception):
    """A job cannot continue; `str()` is the message for the user."""


class OptionError(PipelineError):
    """An option that is unknown or has an invalid value; the message names the option, and the nearest known one."""


class RegistryError(PipelineError):
    """The schema registry cannot be reached, refuses a request, or has a schema that cannot be used.

    No record is at fault, so that this error ends a task, where an undecodable value becomes a dead letter.
    """


class EncodingError(PipelineError):
    """A value of a data frame that the schema of its subject does not allow; `str()` says what is wrong."""


class DamagedLogError(PipelineError):
    """Stored bytes that violate their format, or a CRC that does not match."""

    def __init__(self, topic: str, partition: int, offset: int | None, problem: str) -> None:
        at = "" if offset is None else f" offset {offset}"
        super().__init__(f"{topic}-{partition}{at}: {problem}")

    def __reduce__(self) -> tuple[object, ...]:
        return PipelineError, (str(self),)


class DataLossError(PipelineError):
    """Offsets to be read do not exist any more: retention has deleted them, or the topic was deleted and created
    again.
    """

    def __init__(self, topic: str, partition: int, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(
            f"{topic}-{partition}: offset {offset} is missing, the log has {start_offset} up to {end_offset}: "
            "retention has deleted records, or the topic was recreated; failOnDataLoss=false skips missing records"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return PipelineError, (str(self),)


class RecreatedTopicError(PipelineError):
    """The topic of that name is not the one that was read or written up to that offset of the source."""

    def __init__(self, topic: str, partition: int, offset: int, side: str, known: UUID, found: UUID) -> None:
        super().__init__(
            f"{topic}-{partition} offset {offset}: the {side}'s topic was deleted and recreated meanwhile: it has the "
            f"id {found}, not {known}"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return PipelineError, (str(self),)


def reason(fault: BrokerError) -> str:
    """Return the message of a BrokerError, or the name of its error code."""
    return fault.message or fault.code.name
