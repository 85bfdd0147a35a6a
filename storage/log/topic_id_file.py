"""The `partition.metadata` of one log: the id of the topic that its records belong to.

As in Kafka (`PartitionMetadataFile`) the file is on the disk before a record counts as flushed, and not when the log is
made: else the creation of a thousand partitions would wait for the disk.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable

from ..disk import paths
from ..disk.checkpoints import MalformedCheckpointError, read_topic_id, write_topic_id
from ..disk.files import Files

logger = logging.getLogger(__name__)


class TopicIdFile:
    """One log's topic id and its file."""

    __slots__ = ("_files", "_is_synced", "_path", "topic_id")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{paths.PARTITION_METADATA}"
        self._is_synced = True
        self.topic_id: uuid.UUID | None = None
        """None if it is not known."""

    def load(self, given: uuid.UUID | None) -> None:
        """Read the file; where it has no id that can be believed, note the one that is `given`. Raises OSError."""
        try:
            self.topic_id = read_topic_id(self._files, self._path)
        except MalformedCheckpointError as fault:
            logger.warning("%s: %s: not believed", self._path, fault)
        if self.topic_id is None and given is not None:
            self.note(given)

    def note(self, topic_id: uuid.UUID) -> None:
        """Write the id down; it is on the disk after `hold_for_sync`. Raises OSError."""
        write_topic_id(self._files, self._path, topic_id)
        self.topic_id = topic_id
        self._is_synced = False

    def hold_for_sync(self) -> Callable[[], None]:
        """Return a function that forces the file and the names of file and log to the disk; it raises OSError."""
        was_synced, self._is_synced = self._is_synced, True

        def sync() -> None:
            if was_synced:
                return
            try:
                file = self._files.open(self._path)
                try:
                    file.sync()
                finally:
                    file.close()
                directory = os.path.dirname(self._path)
                self._files.sync_directory(directory)
                self._files.sync_directory(os.path.dirname(directory))
            except OSError:
                self._is_synced = False
                raise

        return sync
