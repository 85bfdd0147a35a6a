"""Errors of Kafka's protocol, with Kafka's texts, for operations that a log cannot carry out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from ...protocol.errors import BrokerError, ErrorCode
from ..disk.directory_health import DirectoryHealth
from .segment import SegmentDamagedError

logger = logging.getLogger(__name__)


class LogFaults:
    """A translator of one log's disk faults into BrokerErrors that reports refused writes to the directory's health."""

    __slots__ = ("_directory", "_health", "_name")

    def __init__(self, directory: str, name: str, health: DirectoryHealth) -> None:
        """Create a log without faults; ``name`` is `<topic>-<partition>`."""
        self._directory = directory
        self._name = name
        self._health = health

    def write_failed(self, verb: str, fault: OSError) -> NoReturn:
        """Raise BrokerError KAFKA_STORAGE_ERROR for a write that was refused; ``verb`` completes "cannot ... <log>"."""
        self._health.write_refused(fault)
        self.storage_failed(verb, fault)

    def storage_failed(self, verb: str, fault: OSError) -> NoReturn:
        """Raise BrokerError KAFKA_STORAGE_ERROR."""
        # One line is enough for a directory that is known to be full or to have failed.
        is_known = self._health.failure is not None or self._health.refusal is not None
        logger.log(logging.DEBUG if is_known else logging.ERROR, "cannot %s %s: %s", verb, self._directory, fault)
        message = f"Error while writing to {self._directory}: {fault}"
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, message) from fault

    def damaged(self, fault: SegmentDamagedError, offset: int | None = None) -> NoReturn:
        """Raise BrokerError CORRUPT_MESSAGE."""
        place = "" if offset is None else f" at offset {offset}"
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"The log of {self._name}{place} is {fault}") from fault

    @contextmanager
    def as_broker_errors(self, verb: str = "read") -> Iterator[None]:
        """Translate OSError and SegmentDamagedError of a block into BrokerErrors; skip the block in a failed directory.

        Raises BrokerError KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        self._health.check()
        try:
            yield
        except SegmentDamagedError as fault:
            self.damaged(fault)
        except OSError as fault:
            self.storage_failed(verb, fault)

    def out_of_range(self, offset: int, log_start_offset: int, log_end_offset: int) -> NoReturn:
        """Raise BrokerError OFFSET_OUT_OF_RANGE for a read."""
        raise BrokerError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Received request for offset {offset} for partition {self._name}, but we only have "
            f"log segments in the range {log_start_offset} to {log_end_offset}.",
        )

    def beyond_high_watermark(self, offset: int, high_watermark: int) -> NoReturn:
        """Raise BrokerError OFFSET_OUT_OF_RANGE for a log start that is not replicated yet."""
        raise BrokerError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Cannot increment the log start offset to {offset} of partition {self._name} since "
            f"it is larger than the high watermark {high_watermark}",
        )
