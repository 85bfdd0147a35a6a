"""Copying topics from one cluster to another, batch by batch, without opening the batches: `gregor mirror`.

`mirror.py` reads and hands on; `outgoing.py` says what a batch becomes on the way; `topics.py` finds and creates
topics. Where the copy goes on after a kill -9 is for the writer to know:

- `numbered_writer.py`, to a Gregor broker, keeps the source's offsets. A batch is its own receipt there: the copy goes
  on where the target's log ends, and a batch that comes twice is recognised by its offsets.
- `journal_writer.py`, to any Kafka, appends with new offsets. Before batches are sent, a journal of them (where the
  target's log ends, and how many records each will take from which stretch of the source) is committed as the text of
  a group's offset at the target. After a crash the log's end says how many of them have arrived. Those sent again
  carry the same producer id and sequence numbers, so that one still on its way from before the crash is recognised.

Both need the mirror to be the only one that writes to the target's partition, and say so if it is not. Formats v0 and
v1 have no sequence numbers; for them a request that the target reads only after the restarted mirror has looked at its
log would be doubled.
"""

from .errors import MirrorError
from .mirror import Mirror, MirrorOptions, MirrorProgress

__all__ = ["Mirror", "MirrorError", "MirrorOptions", "MirrorProgress"]
