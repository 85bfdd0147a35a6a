"""The output of `gregor dump-log --enriched`: messages in the layout of "Enriched Message Metadata"."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Self

from ..protocol.errors import BrokerError
from ..protocol.records.batches import BatchView
from ..protocol.records.enriched import MAGIC, EnrichedMessage, KafkaTags, encode_message, iter_messages, iter_records
from ..protocol.records.enriched_copy import enriched_copies
from .asking import UsageError, describe_broker_error, say
from .dump_side_files import describe_tags
from .progress import ProgressBar

ENRICHED_SUFFIX = ".enriched"
"""The conventional suffix of files that `--output` writes; `dump-log` reads such a file as enriched messages."""


class EnrichedOutput:
    """The output of the messages: a file if one is given, else the screen."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            try:
                self._file = self._path.open("xb")
            except OSError as error:
                raise UsageError(f"{self._path}: {error.strerror}") from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, batch: BatchView, tags: KafkaTags, arguments: argparse.Namespace, progress: ProgressBar) -> None:
        """Write or print the enriched message of one stored batch. Raises BrokerError, OSError."""
        for message in enriched_copies(batch, tags):
            if self._file is not None:
                self._file.write(encode_message(message))
            else:
                for line in _describe(message, arguments):
                    progress.say(line)


def dump_enriched(path: Path, arguments: argparse.Namespace) -> None:
    """Print a file of enriched messages. Raises UsageError for any other file, OSError."""
    data = path.read_bytes()
    end = min(len(data), arguments.max_bytes)
    try:
        for message in iter_messages(memoryview(data)[:end]):
            for line in _describe(message, arguments):
                say(line)
    except BrokerError as error:
        raise UsageError(f"{path}: {describe_broker_error(error)}") from error


def _describe(message: EnrichedMessage, arguments: argparse.Namespace) -> Iterator[str]:
    control = message.control
    kind = message.codec.name.lower() if control is None else control.name.lower()
    tags = "none" if message.tags is None else describe_tags(message.tags)
    yield (
        f"offset: {message.offset} magic: {MAGIC} type: {kind} timestamp: {message.timestamp_s} tags: {tags} "
        f"keySize: {_size(message.key)} valueSize: {_size(message.value)}"
    )
    if not (arguments.deep_iteration or arguments.print_data_log):
        return
    for record in iter_records(message):
        fields = f" key: {_text(record.key)} payload: {_text(record.value)}" if arguments.print_data_log else ""
        yield (
            f"| offset: {record.offset} timestamp: {record.timestamp} keySize: {_size(record.key)} "
            f"valueSize: {_size(record.value)}{fields}"
        )


def _size(field: bytes | None) -> int:
    return -1 if field is None else len(field)


def _text(field: bytes | None) -> str:
    return "null" if field is None else field.decode(errors="replace")
