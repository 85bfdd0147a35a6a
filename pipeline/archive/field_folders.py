"""The folders of rows by a field of their values: `country=SE` for the field `country`, as Hive and Spark name them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from ..columns.schemas import RECORDS
from ..errors import OptionError

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The folder name that Spark and Hive read as null."""
_UNESCAPED = " $&()+,;@~!"
"""The characters that folder names may have, beside letters and digits."""
_TAKEN = {"topic", "date", "hour", *RECORDS.names}


def column_name(field: str) -> str:
    """Return the name of the column and of the folders for a field, such as `address_country` of `address.country`."""
    return field.replace(".", "_")


def check_fields(fields: Sequence[str], value_type: pa.DataType) -> None:
    """Check that rows can have folders by these fields of their values. Raises OptionError."""
    for field in fields:
        try:
            found = field_type(value_type, field)
        except KeyError as fault:
            raise OptionError(f"values have no field {field} to partition by: they are {value_type}") from fault
        if not any(is_kind(found) for is_kind in _KINDS):
            raise OptionError(f"field {field} is {found}: fields to partition by are text, integers, booleans or dates")
        if column_name(field) in _TAKEN:
            raise OptionError(f"a folder by field {field} would have the name of another column, {column_name(field)}")


_KINDS = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)


def field_column(values: pa.Array, field: str) -> pa.Array:
    """Return the column of a field; an empty text is null there, since a folder's name cannot have it."""
    column = pc.struct_field(values, field.split("."))
    if pa.types.is_string(column.type):
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    return column


def field_type(value_type: pa.DataType, field: str) -> pa.DataType:
    """Return the type of a field of values. Raises KeyError if there is none."""
    for name in field.split("."):
        if not pa.types.is_struct(value_type) or value_type.get_field_index(name) < 0:
            raise KeyError(field)
        value_type = value_type.field(name).type
    return value_type


def by_fields(rows: pa.RecordBatch, fields: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each folder with the folder's name, such as `/country=SE/plan=free`; null and "" are one."""
    if not fields:
        yield "", rows
        return
    texts = field_column(rows["value"], fields[0]).cast(pa.string())
    for text in pc.unique(texts).to_pylist():
        of_folder = rows.filter(pc.is_null(texts) if text is None else pc.equal(texts, text))
        folder = f"/{column_name(fields[0])}={NO_VALUE if text is None else quote(text, safe=_UNESCAPED)}"
        for inner, found in by_fields(of_folder, fields[1:]):
            yield folder + inner, found
