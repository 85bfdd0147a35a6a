"""`gregor dump-log`: the contents of a log's files, batch by batch, with the options and words of kafka-dump-log.

With a segment's index (`.gindex`) beside it, a batch's line also ends with the tags that only the index has. Only
the file of `--output` is written, so files of a running broker may be read.
"""

from __future__ import annotations

import argparse
import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ..protocol.errors import BrokerError
from ..protocol.records import v0, v2
from ..protocol.records.batches import BatchView, iter_batches, iter_records
from ..protocol.records.record import Record, TimestampType
from ..storage.index.enriched_tags import tags_by_entry
from .asking import UsageError, describe_broker_error, run_tool, say
from .dump_enriched import ENRICHED_SUFFIX, EnrichedOutput, dump_enriched
from .dump_side_files import SIDE_FILES, TagsBeside, describe_tags
from .enriched_check import EnrichedCheck
from .progress import ProgressBar
from .record_decoders import DECODERS, Decoder, describe_control_record

_TIMESTAMP_LABELS = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
}


EXAMPLES = """\
examples:
  gregor dump-log gregor-data/orders-0/00000000000000000000.log --print-data-log
  gregor dump-log --files gregor-data/__consumer_offsets-0/00000000000000000000.log --offsets-decoder
  gregor dump-log gregor-data/orders-0/00000000000000000000.gindex
  gregor dump-log --enriched --verify gregor-data/orders-0/*.log
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "dump-log",
        help="print the content of a log's files",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "segments",
        nargs="*",
        metavar="FILE",
        help="segments (.log), indexes (.gindex, .txnindex), .snapshot, leader-epoch-checkpoint, .enriched",
    )
    parser.add_argument("--files", default="", metavar="FILE,...", help="the same files, as Kafka's tool takes them")
    parser.add_argument("--deep-iteration", action="store_true", help="show records, not only batches")
    parser.add_argument("--print-data-log", action="store_true", help="show keys and values also")
    parser.add_argument(
        "--skip-record-metadata", action="store_true", help="with --print-data-log: show keys and values only"
    )
    parser.add_argument("--max-bytes", type=int, default=sys.maxsize, metavar="N", help="stop after this many bytes")
    parser.add_argument(
        "--enriched", action="store_true", help="show segments as messages with tags, in the enriched layout"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="with --enriched: show only where the tags in the index differ from those of the opened batches",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="with --enriched: write the messages to this file")
    decoder = parser.add_mutually_exclusive_group()
    for name, text in (
        ("offsets-decoder", "read keys and values as those of __consumer_offsets"),
        ("transaction-log-decoder", "read keys and values as those of __transaction_state"),
        ("cluster-metadata-decoder", "read values as those of __cluster_metadata"),
    ):
        decoder.add_argument(f"--{name}", dest="decoder", action="store_const", const=name, help=text)
    parser.set_defaults(run=run, decoder="text")


def run(arguments: argparse.Namespace) -> int:
    """Dump each file; the exit code is 1 after the first file that is unreadable or damaged, or if --verify fails."""
    check = EnrichedCheck() if arguments.verify else None

    def work() -> None:
        names = [*arguments.segments, *filter(None, arguments.files.split(","))]
        if not names:
            raise UsageError("name the files to show, as in: gregor dump-log gregor-data/t-0/*.log")
        if arguments.output is not None and not arguments.enriched:
            raise UsageError("--output is for --enriched")
        if arguments.verify and (not arguments.enriched or arguments.output is not None):
            raise UsageError("--verify is for --enriched without --output")
        with EnrichedOutput(arguments.output) as output:
            for name in names:
                try:
                    _dump(Path(name), arguments, output, check)
                except OSError as error:
                    if isinstance(error, BrokenPipeError):
                        raise
                    raise UsageError(f"{error.filename or name}: {error.strerror}") from error
        if check is not None:
            say(check.summary())

    return run_tool(work) or int(check is not None and check.difference_count > 0)


def _dump(path: Path, arguments: argparse.Namespace, output: EnrichedOutput, check: EnrichedCheck | None) -> None:
    """Print one file; its name determines the format. Raises UsageError for a file of another format, OSError.

    A file with any other name is read as a segment.
    """
    say(f"Dumping {path}")
    describe = SIDE_FILES.get(path.suffix) or SIDE_FILES.get(path.name)
    if describe is not None:
        for line in describe(path):
            say(line)
    elif path.suffix == ENRICHED_SUFFIX:
        dump_enriched(path, arguments)
    elif check is not None:
        _verify_segment(path, arguments, check)
    else:
        _dump_segment(path, arguments, output)


def _verify_segment(path: Path, arguments: argparse.Namespace, check: EnrichedCheck) -> None:
    """Compare the tags in a segment's index with those of its opened batches.

    Raises UsageError without a readable index, and for a damaged segment; OSError.
    """
    data = _mapped(path)
    end = min(len(data), arguments.max_bytes)
    position = 0
    with ProgressBar(end, "bytes") as progress, TagsBeside(path) as tags_beside:
        try:
            for batch in iter_batches(memoryview(data)[:end]):
                entry = tags_beside.entry_of(batch)
                if not tags_beside.is_there:
                    break
                position = batch.position
                for line in check.differences(batch, tags_by_entry(entry, batch), entry):
                    progress.say(line)
                progress.advance(batch.end)
        except BrokerError as error:
            raise UsageError(f"{path} at position {position}: {describe_broker_error(error)}") from error
        if not tags_beside.is_there:
            raise UsageError(f"{path}: there is no readable index beside it")


def _dump_segment(path: Path, arguments: argparse.Namespace, output: EnrichedOutput) -> None:
    if path.stem.isdecimal():
        say(f"Log starting offset: {int(path.stem)}")
    data = _mapped(path)
    end = min(len(data), arguments.max_bytes)
    valid_bytes = 0
    with ProgressBar(end, "bytes") as progress, TagsBeside(path) as tags_beside:
        try:
            for batch in iter_batches(memoryview(data)[:end]):
                tags = tags_beside.tags_of(batch)
                if arguments.enriched:
                    output.add(batch, tags, arguments, progress)
                else:
                    # The lines of all other batches have their tags already.
                    has_tags = tags_beside.is_there and (batch.is_compressed or batch.magic == v0.MAGIC)
                    progress.say(describe_batch(batch) + (f" tags: {describe_tags(tags)}" if has_tags else ""))
                    for line in _describe_records(batch, arguments):
                        progress.say(line)
                valid_bytes = batch.end
                progress.advance(valid_bytes)
        except BrokerError as error:
            raise UsageError(f"{path} at position {valid_bytes}: {describe_broker_error(error)}") from error
    if valid_bytes != end and end == len(data):
        say(f"Found {end - valid_bytes} invalid bytes at the end of {path.name}")


def _mapped(path: Path) -> mmap.mmap | bytes:
    """Map a file's bytes into memory. The map is released with the last batch that refers to it."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        # An empty file cannot be mapped.
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""


def describe_batch(batch: BatchView) -> str:
    """Return the line of a batch, in the words of Kafka's DumpLogSegments."""
    time = f"{_TIMESTAMP_LABELS[batch.timestamp_type]}: {batch.max_timestamp}"
    codec = batch.codec.name.lower()
    tail = (
        f"position: {batch.position} {time} size: {batch.size_bytes} magic: {batch.magic} compresscodec: {codec} "
        f"crc: {batch.crc} isvalid: {_flag(batch.crc_is_valid)}"
    )
    if batch.magic < v2.MAGIC:
        return f"offset: {batch.last_offset} {tail}"
    horizon = batch.delete_horizon_ms
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.record_count} "
        f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} producerId: {batch.producer_id} "
        f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.leader_epoch} "
        f"isTransactional: {_flag(batch.is_transactional)} isControl: {_flag(batch.is_control)} deleteHorizonMs: "
        f"{'OptionalLong.empty' if horizon is None else f'OptionalLong[{horizon}]'} {tail}"
    )


def _describe_records(batch: BatchView, arguments: argparse.Namespace) -> Iterator[str]:
    if not (arguments.deep_iteration or arguments.print_data_log or arguments.decoder != "text"):
        return
    decode = DECODERS[arguments.decoder]
    for index, record in enumerate(iter_records(batch)):
        yield _describe_record(batch, record, index, decode, arguments)


def _describe_record(
    batch: BatchView, record: Record, index: int, decode: Decoder, arguments: argparse.Namespace
) -> str:
    parts = []
    if not arguments.skip_record_metadata:
        parts.append(
            f"offset: {record.offset} {_TIMESTAMP_LABELS[batch.timestamp_type]}: {record.timestamp} "
            f"keySize: {-1 if record.key is None else len(record.key)} "
            f"valueSize: {-1 if record.value is None else len(record.value)}"
        )
        if batch.magic == v2.MAGIC:
            names = ",".join(header.key.decode(errors="replace") for header in record.headers)
            sequence = (batch.base_sequence + index) & 0x7FFFFFFF if batch.base_sequence >= 0 else -1
            parts.append(f"sequence: {sequence} headerKeys: [{names}]")
    if batch.is_control:
        parts.append(describe_control_record(record))
    elif arguments.print_data_log or arguments.decoder != "text":
        key, value = decode(record.key, record.value)
        parts += [f"key: {key}"] if key is not None else []
        parts += [f"payload: {value}"] if value is not None else []
    return "| " + " ".join(parts)


def _flag(value: bool) -> str:
    return str(value).lower()
