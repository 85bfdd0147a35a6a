"""What goes wrong in a task or in planning: always said with topic, partition and offset where there are any."""

from __future__ import annotations

from uuid import UUID

from ..protocol.errors import BrokerError


class PipelineError(Exception):
    """A job cannot go on; `str()` is what a user reads."""


class OptionError(PipelineError):
    """An option that cannot be; names it, and the nearest known one."""


class DamagedLogError(PipelineError):
    """Stored bytes that break their format, or a CRC that does not fit."""

    def __init__(self, topic: str, partition: int, offset: int | None, problem: str) -> None:
        at = "" if offset is None else f" offset {offset}"
        super().__init__(f"{topic}-{partition}{at}: {problem}")

    def __reduce__(self) -> tuple[object, ...]:
        return PipelineError, (str(self),)


class DataLossError(PipelineError):
    """Offsets that were to be read are not there any more: retention was faster, or the topic was made anew."""

    def __init__(self, topic: str, partition: int, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(
            f"{topic}-{partition}: offset {offset} is not there, the log has {start_offset} up to {end_offset}: "
            "retention was faster, or the topic was made anew; failOnDataLoss=false reads what is there"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return PipelineError, (str(self),)


class RecreatedTopicError(PipelineError):
    """The topic of that name is another one than the one that was read or written up to that offset of the source."""

    def __init__(self, topic: str, partition: int, offset: int, side: str, known: UUID, found: UUID) -> None:
        super().__init__(
            f"{topic}-{partition} offset {offset}: the {side}'s topic was deleted and made anew meanwhile: it has the "
            f"id {found}, not {known}"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return PipelineError, (str(self),)


def reason(fault: BrokerError) -> str:
    """What a BrokerError says, in words where it has any."""
    return fault.message or fault.code.name
