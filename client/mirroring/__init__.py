"""Mirroring of topics from one cluster to another, batch by batch, without decoding the batches: `gregor mirror`.

`mirror.py` reads and forwards batches; `outgoing.py` converts a batch for the target; `topics.py` finds and creates
topics. The writer determines where the copy continues after a kill -9:

- `numbered_writer.py`, to a Gregor broker, keeps the source's offsets. The offsets of a batch prove its arrival: the
  copy continues where the target's log ends, and a repeated batch is recognised by its offsets.
- `journal_writer.py`, to any Kafka, appends with new offsets. Before batches are sent, a journal of them (the end of
  the target's log, and for each batch its record count and its range of source offsets) is committed as the metadata
  of a group's offset at the target. After a crash the end of the log tells how many of them have arrived. Repeated
  batches have the same producer id and sequence numbers, so that a batch still in flight from before the crash is
  recognised.

Both require that only the mirror writes to the target's partition, and report any other writer. Formats v0 and v1
have no sequence numbers; with them a request that the target reads only after the restarted mirror has read the end
of the log would be stored twice.
"""

from .errors import MirrorError
from .mirror import Mirror, MirrorOptions, MirrorProgress

__all__ = ["Mirror", "MirrorError", "MirrorOptions", "MirrorProgress"]
