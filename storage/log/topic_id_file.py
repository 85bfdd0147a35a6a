"""The file `partition.metadata` of one log: the id of the topic of its records.

As in Kafka (`PartitionMetadataFile`) the file is flushed before the first record counts as flushed, not when the log is
created: otherwise the creation of a thousand partitions would wait for the disk.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable

from ..disk import paths
from ..disk.checkpoints import MalformedCheckpointError, read_topic_id, write_topic_id
from ..disk.deferred_sync import DeferredSync
from ..disk.files import Files

logger = logging.getLogger(__name__)


class TopicIdFile:
    """The topic id of one log, with its file."""

    __slots__ = ("_files", "_path", "_sync", "topic_id")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{paths.PARTITION_METADATA}"
        self._sync = DeferredSync(files, self._path, parents=2)
        self.topic_id: uuid.UUID | None = None
        """Topic's id, None if it is not known."""

    def load(self, given: uuid.UUID | None) -> None:
        """Read the topic id from the file; without a valid id in it, write the `given` one. Raises OSError."""
        try:
            self.topic_id = read_topic_id(self._files, self._path)
        except MalformedCheckpointError as fault:
            logger.warning("%s: %s: file ignored", self._path, fault)
        if self.topic_id is None and given is not None:
            self.note(given)

    def note(self, topic_id: uuid.UUID) -> None:
        """Write the id; it is on the disk once the function of `hold_for_sync` has run. Raises OSError."""
        write_topic_id(self._files, self._path, topic_id)
        self.topic_id = topic_id
        self._sync.is_synced = False

    def hold_for_sync(self) -> Callable[[], None]:
        """Return a function that flushes the file and the names of file and log directory; it raises OSError."""
        return self._sync.hold()
