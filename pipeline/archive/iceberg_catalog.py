"""The catalog of an archive's Iceberg tables: a file of SQLite in the archive, or one of PyIceberg's configuration."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import OptionError, PipelineError
from ..filesystems.locations import Location, location
from .description import ArchiveDescription
from .manifest import DATA

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

TableId = tuple[str, ...]
"""The namespace of a table, and its name."""

CATALOG_FILE = "catalog.db"
NAMESPACE = "archive"


def open_catalog(description: ArchiveDescription, root: Location) -> Catalog:
    """Return the catalog of the archive's tables. Raises PipelineError, also without PyIceberg."""
    if importlib.util.find_spec("pyiceberg") is None:
        raise PipelineError("an archive in Iceberg needs `pip install 'gregor-broker[iceberg]'`")
    if description.table is None:
        if not isinstance(root, Path):
            raise OptionError(f"{root} cannot have a catalog of Iceberg: name a table of another catalog with --table")
        from pyiceberg.catalog.sql import SqlCatalog

        root.mkdir(parents=True, exist_ok=True)
        return SqlCatalog(NAMESPACE, uri=f"sqlite:///{root / CATALOG_FILE}", warehouse=f"file://{root}")
    from pyiceberg.catalog import load_catalog

    name, *place = description.table.split(".")
    if len(place) < 2:
        raise OptionError(f"a table in Iceberg is CATALOG.NAMESPACE.NAME, not {description.table}")
    try:
        return load_catalog(name)
    except Exception as fault:  # each kind of catalog has errors of its own
        raise PipelineError(f"catalog {name} of {description.table}: {fault}") from fault


def table_id(description: ArchiveDescription, folder: str) -> TableId:
    """Return the table of the rows in `data`, or of those in `dead_letters`."""
    if description.table is None:
        return (NAMESPACE, folder)
    _, *place = description.table.split(".")
    return tuple(place) if folder == DATA else (*place[:-1], f"{place[-1]}_{folder}")


def data_file_location(uri: str) -> Location:
    """Return the location of a table's file, whose URI PyIceberg does not escape. Raises OptionError."""
    scheme, _, path = uri.rpartition("://")
    return Path(path.removeprefix("file:")) if scheme in ("", "file") else location(uri.replace("%", "%25"))


def folder_of(table: Table, uri: str) -> str:
    """Return the folder of a data file below the table's location, or where another program wrote it, `elsewhere`."""
    base = table.location().rstrip("/") + "/"
    return uri.removeprefix(base).rpartition("/")[0] if uri.startswith(base) else "elsewhere"
