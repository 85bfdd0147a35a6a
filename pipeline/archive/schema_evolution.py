"""The evolution of a table's column `value`: the changes that make it hold values of a new schema too.

A field that the new schema lacks stays in the table, and is null in new rows. A field of the new schema that has the
table's name of a field among its `aliases` renames that field (Avro 1.11, "Aliases"). Types may only become wider, and
only as Delta Lake and Iceberg both allow it without rewriting files: int to long, float to double, and decimals to
more digits of the same scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from .avro_types import AvroColumn, AvroField
from .manifest import ManifestError

VALUE = "value"
_WIDER = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}


@dataclass(frozen=True, slots=True)
class Added:
    """A new column, by its full path in the table after all renames."""

    path: tuple[str, ...]
    arrow_type: pa.DataType


@dataclass(frozen=True, slots=True)
class Widened:
    """A column with a wider type, by its path in the table after all renames."""

    path: tuple[str, ...]
    arrow_type: pa.DataType


@dataclass(frozen=True, slots=True)
class Renamed:
    """A column with another name; `path` has its old name, after all renames of the columns around it."""

    path: tuple[str, ...]
    name: str


Change = Added | Widened | Renamed


def changes(known: pa.DataType, wanted: pa.DataType, column: AvroColumn | None = None) -> list[Change]:
    """Return the changes of a column of the type `known` for values of `wanted`, in the order to apply them.

    `column` is that of an Avro schema, whose aliases rename fields. Raises ManifestError if the table's column cannot
    become one for these values.
    """
    return list(_changes(known, wanted, column, (VALUE,)))


def _changes(
    known: pa.DataType, wanted: pa.DataType, column: AvroColumn | None, path: tuple[str, ...]
) -> Iterator[Change]:
    items = column.items if column else None
    if pa.types.is_struct(known) and pa.types.is_struct(wanted):
        by_name = {field.name: field for field in column.fields} if column else {}
        for field in wanted:
            yield from _field_changes(known, wanted, field, by_name.get(field.name), path)
    elif _is_list(known) and _is_list(wanted):
        yield from _changes(known.value_type, wanted.value_type, items, (*path, "element"))
    elif pa.types.is_map(known) and pa.types.is_map(wanted):
        yield from _changes(known.item_type, wanted.item_type, items, (*path, "value"))
    else:
        yield from _type_changes(_leaf(known), _leaf(wanted), path)


def _field_changes(
    known: pa.StructType, wanted: pa.StructType, field: pa.Field, avro: AvroField | None, path: tuple[str, ...]
) -> Iterator[Change]:
    kept, names = ({each.name for each in struct} for struct in (wanted, known))
    old_name = field.name
    if old_name not in names:
        old_names = [name for name in (avro.aliases if avro else ()) if name in names and name not in kept]
        if not old_names:
            yield Added((*path, field.name), field.type)
            return
        old_name = old_names[0]
        yield Renamed((*path, old_name), field.name)
    yield from _changes(known.field(old_name).type, field.type, avro.column if avro else None, (*path, field.name))


def _type_changes(known: pa.DataType, wanted: pa.DataType, path: tuple[str, ...]) -> Iterator[Change]:
    if known == wanted:
        return
    if (known, wanted) not in _WIDER and not _has_more_digits(known, wanted):
        raise ManifestError(
            f"{'.'.join(path)} is {known} in the table, and the schema makes it {wanted}: a table's types can only "
            "become wider; use another root"
        )
    yield Widened(path, wanted)


def _has_more_digits(known: pa.DataType, wanted: pa.DataType) -> bool:
    if not (pa.types.is_decimal(known) and pa.types.is_decimal(wanted)):
        return False
    return bool(known.scale == wanted.scale and known.precision < wanted.precision)


def _is_list(known: pa.DataType) -> bool:
    return bool(pa.types.is_list(known) or pa.types.is_large_list(known))


def _leaf(known: pa.DataType) -> pa.DataType:
    """Return the type without the differences that tables do not keep: units of time and the sizes of offsets."""
    if pa.types.is_timestamp(known):
        return pa.timestamp("us", known.tz and "UTC")
    if pa.types.is_time(known):
        return pa.time64("us")
    if pa.types.is_large_string(known):
        return pa.string()
    if pa.types.is_large_binary(known) or pa.types.is_fixed_size_binary(known):
        return pa.binary()
    return known
