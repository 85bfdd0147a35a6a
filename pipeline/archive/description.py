"""The description of an archive: `archive.json`, written when the archive is created.

Only the type of values may change later, where the table's format allows the schema to evolve.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from ..filesystems.files import create_json, write_json
from ..filesystems.locations import Location
from .manifest import ManifestError

FILE_NAME = "archive.json"


class Values(StrEnum):
    """The representation of records' values."""

    RAW = "raw"
    """Bytes."""
    STRING = "string"
    """UTF-8 text."""
    JSON = "json"
    """Text that is JSON; typed columns if there is a schema."""
    AVRO = "avro"
    """Typed columns of a schema, decoded from Confluent's wire format."""
    PROTOBUF = "protobuf"
    """Typed columns of a registered schema's message, decoded from Confluent's wire format."""
    JSON_SCHEMA = "json-schema"
    """Typed columns of a registered JSON Schema, checked and decoded from Confluent's wire format."""
    BATCHES = "batches"
    """Stored batches instead of records, byte for byte, so that a topic can be restored exactly."""


class Period(StrEnum):
    """The period of one folder of files."""

    DATE = "date"
    HOUR = "hour"


class TableFormat(StrEnum):
    """The format of the rows' table."""

    PARQUET = "parquet"
    """Parquet files; the manifest lists the valid ones."""
    DELTA = "delta"
    """Tables of Delta Lake."""
    ICEBERG = "iceberg"
    """Tables of Apache Iceberg."""

    @property
    def is_table(self) -> bool:
        """Return whether the format has commits, and a schema that can evolve."""
        return self is not TableFormat.PARQUET


@dataclass(frozen=True, slots=True)
class ArchiveDescription:
    """The properties of an archive. `value_type` is Arrow's, as text.

    `table` is the name of the rows' table in a catalog, or None for a table below the root. `fields` are the paths of
    fields of the value, such as `address.country`, by which the rows have folders beside topic and period.
    """

    cluster_id: str | None
    values: Values
    period: Period
    value_type: str
    table_format: TableFormat = TableFormat.PARQUET
    table: str | None = None
    fields: tuple[str, ...] = ()

    @classmethod
    def read(cls, root: Location) -> ArchiveDescription | None:
        """Return the description of the archive under `root`; None if there is none. Raises ManifestError."""
        path = root / FILE_NAME
        try:
            fields = json.loads(path.read_text())
            return cls(
                fields["cluster_id"],
                Values(fields["values"]),
                Period(fields["period"]),
                str(fields["value_type"]),
                TableFormat(fields.get("table_format", TableFormat.PARQUET)),
                fields.get("table"),
                tuple(fields.get("fields", ())),
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as fault:
            raise ManifestError(f"{path} is damaged: {fault}") from fault

    def known_or_new(self, root: Location) -> ArchiveDescription:
        """Return the description of the archive under `root`, which this one must fit, or this one if there is none.

        The types of values may differ where the table's schema can evolve. Raises ManifestError.
        """
        known = ArchiveDescription.read(root)
        if known is None:
            return self
        for name, ours, theirs in (
            ("values", self.values, known.values),
            ("folders by", self.period, known.period),
            ("value type", self.value_type, known.value_type),
            ("format", self.table_format, known.table_format),
            ("table", self.table, known.table),
            ("partition fields", self.fields, known.fields),
        ):
            if ours != theirs and not (name == "value type" and known.table_format.is_table):
                made, asked = (each or "none" for each in (theirs, ours))
                raise ManifestError(f"{root}: the archive was made with {name} {made}, not {asked}: use another root")
        if self.cluster_id and known.cluster_id and self.cluster_id != known.cluster_id:
            raise ManifestError(f"{root}: the archive is of cluster {known.cluster_id}, not of {self.cluster_id}")
        return known

    def create(self, root: Location) -> None:
        """Make this the description of a new archive under `root`. Raises OSError."""
        create_json(root / FILE_NAME, asdict(self))

    def replace_in(self, root: Location) -> None:
        """Make this the description of the existing archive under `root`. Raises OSError."""
        write_json(root / FILE_NAME, asdict(self))
