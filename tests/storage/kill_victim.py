"""Appends to a log until it is killed: acknowledges each batch on standard output after the append. Run as a script."""

import os
import sys

from gregor.protocol.records import v2
from gregor.protocol.records.batches import Record
from gregor.protocol.records.validation import AppendRules, validate
from gregor.storage.clock import SystemClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log_manager import LogManager

PRODUCER = 7


def value(sequence: int) -> bytes:
    """Return the value of the record with this sequence number."""
    return b"%d:" % sequence + b"x" * (sequence % 700)


def main(directory: str, sequence: int) -> None:
    """Append idempotently from `sequence` on; the one before may or may not have been written: send it again."""
    config = LogConfig(segment_bytes=60_000, index_interval_bytes=512, retention_ms=-1)
    logs = LogManager([directory], config, SystemClock())
    logs.open_all()
    log = logs.create("topic", 0)
    out = sys.stdout.fileno()
    while True:
        data = v2.build_batch(
            [Record(0, 1000 + sequence, b"key", value(sequence))],
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=sequence,
        )
        result = log.append(validate(bytearray(data), AppendRules(), now_ms=1000), leader_epoch=0)
        os.write(out, b"%d %d\n" % (sequence, result.base_offset))
        sequence += 1
        if sequence % 97 == 0:
            for step in logs.maintenance.run(SystemClock().now_ms()):
                step()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
