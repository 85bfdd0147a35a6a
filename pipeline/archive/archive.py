"""An open archive: its description, its manifest, and the table of its rows."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from ..filesystems.locations import Location
from .description import ArchiveDescription, TableFormat
from .manifest import Manifest, ManifestError
from .manifest_entry import ArchivedBatch, empty_batch
from .row_table import ParquetFiles, RowTable
from .writer_lock import ArchiveLock

if TYPE_CHECKING:
    from ..jobs.desk import Desk
    from .value_formats import ValueFormat


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive. A process that changes it holds its lock."""

    description: ArchiveDescription
    manifest: Manifest
    table: RowTable
    lock: ArchiveLock | None = None

    @classmethod
    def open(cls, root: Location, desk: Desk) -> Self:
        """Open an existing archive for reading. Raises PipelineError."""
        description = ArchiveDescription.read(root)
        if description is None:
            raise ManifestError(f"{root} is not an archive: it has no archive.json")
        return cls._of(description, root, desk)

    @classmethod
    def establish(
        cls, root: Location, description: ArchiveDescription, values: ValueFormat, desk: Desk, lock: ArchiveLock
    ) -> Self:
        """Open the archive of this description for writing; create it if necessary. A pending batch becomes valid.

        If the holder of the lock before may still write, an empty batch makes its next commit fail. A table's schema
        evolves to that of `values`.

        Raises PipelineError, also where the archive was created with another description; OSError.
        """
        known = description.known_or_new(root)
        # Its description is written after its tables are open: if they cannot be, another format may be chosen.
        archive = cls._of(known, root, desk, lock)
        if known is description:
            description.create(root)
        while True:
            archive._finish_pending()
            if not lock.follows_a_crash:
                break
            with contextlib.suppress(FileExistsError):
                archive.commit(empty_batch(archive.manifest.next_number))
                break
            archive = cls._of(known, root, desk, lock)
        return archive.evolved(values)

    @classmethod
    def _of(cls, description: ArchiveDescription, root: Location, desk: Desk, lock: ArchiveLock | None = None) -> Self:
        has_files = description.table_format is TableFormat.PARQUET
        manifest = Manifest(root, has_files=has_files, epoch=lock.epoch if lock else 0)
        if has_files:
            return cls(description, manifest, ParquetFiles(manifest), lock)
        if description.table_format is TableFormat.ICEBERG:
            from .iceberg_tables import IcebergTables

            return cls(description, manifest, IcebergTables(description, manifest), lock)
        from .delta_tables import DeltaTables

        return cls(description, manifest, DeltaTables(description, manifest, desk), lock)

    def evolved(self, values: ValueFormat) -> Self:
        """Change the table so that it holds these values too; return the changed archive.

        Raises PipelineError if the table cannot do that, OSError.
        """
        value_type = values.arrow_type()
        if self.description.value_type == str(value_type):
            return self
        self.table.evolve(value_type, values.column())
        evolved = replace(self.description, value_type=str(value_type))
        evolved.replace_in(self.root)
        return replace(self, description=evolved)

    @property
    def root(self) -> Location:
        """The archive's directory."""
        return self.manifest.root

    def commit(self, batch: ArchivedBatch) -> None:
        """Commit a batch whose files are staged. Raises PipelineError, OSError."""
        self.manifest.stage(batch)
        self._confirm_lock()
        self._finish_pending()

    def compact(self, desk: Desk, kept_hours: float) -> tuple[int, int]:
        """Merge small files; return the numbers of files before and after. Raises PipelineError, OSError.

        Versions of a table older than `kept_hours` are forgotten. A process that reads the archive by an older state
        of its manifest meanwhile may miss files.
        """
        replaced, made, batch = self.table.compact(desk, self.manifest, kept_hours)
        if batch is not None:
            self.commit(batch)
        return replaced, made

    def sweep(self) -> list[Location]:
        """Remove the files of batches that were never committed or were replaced; return them. Raises OSError."""
        self._confirm_lock()
        return [*self.manifest.sweep(), *self.table.sweep()]

    def _confirm_lock(self) -> None:
        if self.lock is not None:
            self.lock.confirm()

    def _finish_pending(self) -> None:
        pending = self.manifest.pending
        if pending is not None:
            self.table.publish(pending)
            self.manifest.count(pending)
