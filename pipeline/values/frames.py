"""Data frames with values in Confluent's wire format, decoded and encoded on the executors, by schemas of a registry.

Spark's own `from_avro` and `from_protobuf` read values of one writer's schema, without the header. They suit a topic
whose values all have one schema; these functions suit any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from ..archive.description import Values
from ..archive.value_formats import RegisteredValues, ValueFormat
from ..errors import OptionError
from .encoder import encoder_of
from .registry import RegisteredSchema, SchemaKind, UnknownSchemaError, shared_registry
from .registry_settings import RegistrySettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

REASON = "reason"


def decode_values(
    frame: DataFrame,
    registry: Mapping[str, str],
    subject: str,
    *,
    values: Values | str = Values.AVRO,
    message: str | None = None,
    column: str = "value",
) -> DataFrame:
    """Decode a binary column to the columns of a subject's schema, and add a column `reason`.

    `registry` has keys of `registry_settings`, `schema.registry.url` at least; `subject` is `NAME` or `NAME:VERSION`,
    and `values` is `avro`, `protobuf` or `json-schema`. The column of an undecodable value is null, and `reason` says
    why; for such rows keep the binary column under another name. Raises OptionError, RegistryError; a registry that
    cannot be reached ends the query.
    """
    from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    found = [field for field in frame.schema if field.name == column]
    if not found or not isinstance(found[0].dataType, BinaryType):
        raise OptionError(f"{column} is no binary column of {', '.join(frame.columns)}")
    if REASON in frame.columns:
        raise OptionError(f"the data frame has a column {REASON} already")
    settings = RegistrySettings.from_properties(registry)
    format_ = ValueFormat.from_registry(Values(values), RegisteredValues.of_subject(settings, subject, message))
    decoded = StructField(column, from_arrow_type(format_.arrow_type()))
    fields = [decoded if field.name == column else field for field in frame.schema]
    schema = StructType([*fields, StructField(REASON, StringType())])
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    return frame.mapInArrow(_decoding(format_, column, to_arrow_schema(schema, timezone=zone)), schema)


def encode_values(
    frame: DataFrame,
    registry: Mapping[str, str],
    subject: str,
    *,
    message: str | None = None,
    column: str = "value",
    schema: str | None = None,
    kind: SchemaKind | str = SchemaKind.AVRO,
    register: bool = False,
) -> DataFrame:
    """Encode a column, of a struct mostly, to Confluent's wire format by a schema of a subject.

    The schema is the latest of `subject`, or that of `NAME:VERSION`; with `schema`, the text of a schema of `kind`
    (`AVRO`, `PROTOBUF`, `JSON`), it is the version that has this text, and with `register` the registry gets this text
    as a new version if it has none. The fields have the names and types that `decode_values` gives them; null stays
    null. A field that a row lacks gets the schema's default. Raises OptionError, RegistryError; a value that the schema
    does not allow ends the query with EncodingError.
    """
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import BinaryType, StructField, StructType

    if column not in frame.columns:
        raise OptionError(f"{column} is no column of {', '.join(frame.columns)}")
    settings = RegistrySettings.from_properties(registry)
    found = _schema_of(settings, subject, schema, SchemaKind(kind), register)
    # A schema that cannot be used is an error here, not in the tasks.
    encoder_of(found, message)
    fields = [StructField(column, BinaryType()) if field.name == column else field for field in frame.schema]
    result = StructType(fields)
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    return frame.mapInArrow(_encoding(found, message, column, to_arrow_schema(result, timezone=zone)), result)


def _schema_of(
    settings: RegistrySettings, subject: str, text: str | None, kind: SchemaKind, register: bool
) -> RegisteredSchema:
    if text is None:
        if register:
            raise OptionError("register needs the text of a schema")
        return RegisteredValues.of_subject(settings, subject).reader
    known = shared_registry(settings)
    try:
        return known.register(subject, kind, text) if register else known.lookup(subject, kind, text)
    except UnknownSchemaError as fault:
        raise OptionError(f"subject {subject} has no such schema: {fault}; register=True adds it") from None


def _encoding(
    schema: RegisteredSchema, message: str | None, column: str, result: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def encode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encoded = encoder_of(schema, message)
        for batch in batches:
            values = batch[column].to_pylist(maps_as_pydicts="strict")
            written = pa.array([None if value is None else encoded(value) for value in values], pa.binary())
            columns = [written if name == column else batch[name] for name in batch.schema.names]
            columns = [each.cast(field.type) for each, field in zip(columns, result, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=result)

    return encode


def _decoding(
    format_: ValueFormat, column: str, schema: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = format_.decoder()
        for batch in batches:
            decoded, reasons = decoder.decode(batch[column])
            told = pa.array([reasons.get(index) for index in range(batch.num_rows)], pa.string())
            columns = [decoded if name == column else batch[name] for name in batch.schema.names]
            columns = [each.cast(field.type) for each, field in zip([*columns, told], schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return decode
