"""What an archive is: `archive.json`, written when the archive is made and never changed."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from .manifest import ManifestError

FILE_NAME = "archive.json"


class Values(StrEnum):
    """What becomes of records' values."""

    RAW = "raw"
    """Bytes."""
    STRING = "string"
    """UTF-8 text."""
    JSON = "json"
    """Text that is JSON; columns of their own if there is a schema."""
    AVRO = "avro"
    """Columns of a schema, from Confluent's wire format."""
    BATCHES = "batches"
    """No records: stored batches, byte for byte, so that a topic can be restored as it was."""


class Period(StrEnum):
    """What one folder of files holds."""

    DATE = "date"
    HOUR = "hour"


@dataclass(frozen=True, slots=True)
class ArchiveDescription:
    """What must stay the same for an archive's whole life. `value_type` is Arrow's, as text."""

    cluster_id: str | None
    values: Values
    period: Period
    value_type: str

    @classmethod
    def read(cls, root: Path) -> ArchiveDescription | None:
        """What the archive under `root` is; None if there is none. Raises ManifestError."""
        path = root / FILE_NAME
        try:
            fields = json.loads(path.read_text())
            return cls(
                fields["cluster_id"], Values(fields["values"]), Period(fields["period"]), str(fields["value_type"])
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as fault:
            raise ManifestError(f"{path} is damaged: {fault}") from fault

    def establish(self, root: Path) -> ArchiveDescription:
        """Make this the archive's description, or raise ManifestError where it has another one already."""
        known = ArchiveDescription.read(root)
        if known is None:
            self._write(root / FILE_NAME)
            return self
        for name, ours, theirs in (
            ("values", self.values, known.values),
            ("folders by", self.period, known.period),
            ("value type", self.value_type, known.value_type),
        ):
            if ours != theirs:
                raise ManifestError(f"{root}: the archive was made with {name} {theirs}, not {ours}: use another root")
        if self.cluster_id and known.cluster_id and self.cluster_id != known.cluster_id:
            raise ManifestError(f"{root}: the archive is of cluster {known.cluster_id}, not of {self.cluster_id}")
        return known

    def _write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".part")
        with temporary.open("w") as file:
            json.dump(asdict(self), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
