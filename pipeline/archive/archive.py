"""An open archive: its description, its manifest, and the table of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from .description import ArchiveDescription, TableFormat
from .manifest import Manifest, ManifestError
from .manifest_entry import ArchivedBatch
from .row_table import ParquetFiles, RowTable

if TYPE_CHECKING:
    from ..jobs.desk import Desk


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive. A process that changes it holds its WriterLock."""

    description: ArchiveDescription
    manifest: Manifest
    table: RowTable

    @classmethod
    def open(cls, root: Path, desk: Desk) -> Self:
        """Open an existing archive for reading. Raises PipelineError."""
        description = ArchiveDescription.read(root)
        if description is None:
            raise ManifestError(f"{root} is not an archive: it has no archive.json")
        return cls._of(description, root, desk)

    @classmethod
    def establish(cls, root: Path, description: ArchiveDescription, desk: Desk) -> Self:
        """Open the archive of this description for writing; create it if necessary. A pending batch becomes valid.

        Raises PipelineError, also where the archive was created with another description; OSError.
        """
        archive = cls._of(description.establish(root), root, desk)
        archive._finish_pending()
        return archive

    @classmethod
    def _of(cls, description: ArchiveDescription, root: Path, desk: Desk) -> Self:
        manifest = Manifest(root, has_files=description.table_format is TableFormat.PARQUET)
        if description.table_format is TableFormat.PARQUET:
            return cls(description, manifest, ParquetFiles(manifest))
        from .delta_tables import DeltaTables

        return cls(description, manifest, DeltaTables(description, manifest, desk))

    @property
    def root(self) -> Path:
        """The archive's directory."""
        return self.manifest.root

    def commit(self, batch: ArchivedBatch) -> None:
        """Commit a batch whose files are staged. Raises PipelineError, OSError."""
        self.manifest.stage(batch)
        self._finish_pending()

    def compact(self, desk: Desk) -> tuple[int, int]:
        """Merge small files; return the numbers of files before and after. Raises PipelineError, OSError.

        A process that reads the archive by an older state of its manifest meanwhile may miss files.
        """
        replaced, made, batch = self.table.compact(desk, self.manifest)
        if batch is not None:
            self.commit(batch)
        return replaced, made

    def sweep(self) -> list[Path]:
        """Remove the files of batches that were never committed or were replaced; return them. Raises OSError."""
        return [*self.manifest.sweep(), *self.table.sweep()]

    def _finish_pending(self) -> None:
        pending = self.manifest.pending
        if pending is not None:
            self.table.publish(pending)
            self.manifest.count(pending)
