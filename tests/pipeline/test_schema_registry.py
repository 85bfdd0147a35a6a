"""Values by the schemas of a registry: evolving schemas, references, hostile bytes, and a registry that fails."""

import base64
import io
import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("grpc_tools", reason="schemas of a registry need gregor-broker[registry]")
pytest.importorskip("jsonschema", reason="schemas of a registry need gregor-broker[registry]")

import fastavro
import pyarrow as pa

from gregor.pipeline.archive.description import Values
from gregor.pipeline.archive.value_formats import RegisteredValues, ValueFormat
from gregor.pipeline.errors import OptionError, RegistryError
from gregor.pipeline.values import registry as registry_module
from gregor.pipeline.values.protobuf_schemas import compiled, message_named
from gregor.pipeline.values.registry import BoundedCache, Registry, UnknownSchemaError
from gregor.pipeline.values.registry_settings import RegistrySettings
from gregor.pipeline.values.wire_format import WireFormatError, read_message_indexes, split_header, write_header
from gregor.security.development_certificates import DevelopmentAuthority
from gregor.security.login_rules import RetryRules
from tests.pipeline.schema_registry import SchemaRegistry, running_registry

USER = {"type": "record", "name": "User", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
USER_REFERENCE = [{"name": "shop.User", "subject": "user", "version": 1}]


def order(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": list(fields)}


PLAIN = order({"name": "n", "type": "int"})
WIDENED = order({"name": "n", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None})
RENAMED = order({"name": "number", "aliases": ["n"], "type": "long"})


@pytest.fixture
def server() -> Iterator[SchemaRegistry]:
    """Provide an empty registry."""
    with running_registry() as registry:
        yield registry


def settings(server: SchemaRegistry, **properties: str) -> RegistrySettings:
    named = {name.replace("_", "."): text for name, text in properties.items()}
    return RegistrySettings.from_properties({"schema.registry.url": server.url, **named})


def format_of(server: SchemaRegistry, kind: Values, subject: str, message: str | None = None) -> ValueFormat:
    """Return the format as a task gets it."""
    found = ValueFormat.from_registry(kind, RegisteredValues.of_subject(settings(server), subject, message))
    copied: ValueFormat = pickle.loads(pickle.dumps(found))
    return copied


def avro(number: int, schema: Any, value: Any, named: Any = None) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema, named_schemas=dict(named or {})), value)
    return write_header(number) + body.getvalue()


def decoded(found: ValueFormat, *values: bytes | None) -> tuple[list[Any], dict[int, str]]:
    column, reasons = found.decoder().decode(pa.array(values, pa.binary()))
    assert column.type == found.arrow_type()
    return column.to_pylist(), reasons


# --- the wire format ---


@pytest.mark.parametrize("indexes", [(0,), (1,), (0, 0), (3, 1, 200), (2**20,)])
def test_message_indexes_are_read_as_written(indexes: tuple[int, ...]) -> None:
    value = write_header(7, indexes) + b"body"
    number, at = split_header(value)
    assert number == 7
    assert read_message_indexes(value, at) == (indexes, len(value) - 4)


def test_the_bytes_are_those_of_confluents_documents() -> None:
    assert write_header(1) == b"\x00\x00\x00\x00\x01"
    assert write_header(1, (0,)) == b"\x00\x00\x00\x00\x01\x00", "one byte for the first message"
    assert write_header(1, (1, 0)) == b"\x00\x00\x00\x00\x01\x04\x02\x00", "zigzag"


@pytest.mark.parametrize(
    "value", [b"", b"\0\0\0\0", b"\1\0\0\0\1x", b"\0\0\0\0\1", b"\0\0\0\0\1\xff\xff\xff\xff\xff\1"]
)
def test_cut_and_foreign_values_are_refused(value: bytes) -> None:
    with pytest.raises(WireFormatError):
        read_message_indexes(value, split_header(value)[1])


@pytest.mark.parametrize("count", [b"\x01", b"\xfe\x7f", b"\x08\x00"])
def test_impossible_counts_of_indexes_are_refused(count: bytes) -> None:
    with pytest.raises(WireFormatError):
        read_message_indexes(count, 0)


# --- Avro ---


def test_values_of_several_writer_schemas_are_read_with_the_reader_schema(server: SchemaRegistry) -> None:
    first, second = server.register("t-value", PLAIN), server.register("t-value", WIDENED)
    values = [avro(first, PLAIN, {"n": 3}), avro(second, WIDENED, {"n": 4, "note": "x"}), None]
    assert decoded(format_of(server, Values.AVRO, "t-value"), *values) == (
        [{"n": 3, "note": None}, {"n": 4, "note": "x"}, None],
        {},
    )
    third = server.register("t-value", RENAMED)
    assert decoded(format_of(server, Values.AVRO, "t-value"), *values, avro(third, RENAMED, {"number": 5}))[0] == [
        {"number": 3},
        {"number": 4},
        None,
        {"number": 5},
    ]
    rows, reasons = decoded(format_of(server, Values.AVRO, "t-value:1"), *values)
    assert rows[0] == {"n": 3}
    assert list(reasons) == [1], "a long does not fit into the int of version 1"
    assert "Schema" in reasons[1]


def test_avro_schemas_can_reference_types_of_other_subjects(server: SchemaRegistry) -> None:
    server.register("user", USER)
    schema = order({"name": "user", "type": "shop.User"}, {"name": "again", "type": ["null", "User"]})
    number = server.register("t-value", schema, references=USER_REFERENCE)
    named: dict[str, Any] = {}
    fastavro.parse_schema(USER, named_schemas=named)
    found = format_of(server, Values.AVRO, "t-value")
    value = avro(number, schema, {"user": {"id": 1}, "again": {"id": 2}}, named)
    assert decoded(found, value) == ([{"user": {"id": 1}, "again": {"id": 2}}], {})


def test_undecodable_values_have_reasons(server: SchemaRegistry) -> None:
    number = server.register("t-value", PLAIN)
    other = server.register("p-value", 'syntax = "proto3"; message A { int32 n = 1; }', "PROTOBUF")
    good = avro(number, PLAIN, {"n": 3})
    rows, reasons = decoded(
        format_of(server, Values.AVRO, "t-value"),
        b"plain text",
        good + b"!",
        good[:-1],
        write_header(9) + b"x",
        write_header(other, (0,)),
        good,
    )
    assert rows == [None] * 5 + [{"n": 3}]
    assert reasons[0] == "WireFormatError: no header of Confluent's wire format"
    assert reasons[1] == "ValueError: 1 bytes too many"
    assert reasons[2].startswith("EOFError")
    assert reasons[3] == "UnknownSchemaError: the registry has no schemas/ids/9: Schema 9 not found"
    assert reasons[4] == f"ValueError: schema {other} is of kind PROTOBUF, not AVRO"


# --- Protobuf ---

MONEY = 'syntax = "proto3"; package money; message Amount { string currency = 1; double amount = 2; }'
ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "money/amount.proto";
message First { string a = 1; }
message Order {
  message Line { string sku = 1; uint32 count = 2; }
  enum Color { RED = 0; BLUE = 1; }
  int64 id = 1;
  optional string note = 2;
  repeated Line lines = 3;
  map<string, int32> tags = 4;
  Color color = 5;
  google.protobuf.Timestamp at = 6;
  money.Amount price = 7;
  uint64 big = 8;
  google.protobuf.Int32Value maybe = 9;
  oneof side { string left = 10; bytes right = 11; }
}
"""
AMOUNT_REFERENCE = [{"name": "money/amount.proto", "subject": "money", "version": 1}]


def protobuf(found: ValueFormat, name: str, **fields: Any) -> Any:
    from google.protobuf import message_factory

    assert found.registered is not None
    return message_factory.GetMessageClass(message_named(found.registered.reader, name))(**fields)


def in_base64(server: SchemaRegistry, subject: str) -> str:
    """Return the Protobuf schema of a subject as Confluent's Python serializer registers it."""
    schema = RegisteredValues.of_subject(settings(server), subject).reader
    return base64.b64encode(compiled(schema).serialized_pb).decode()


@pytest.mark.parametrize("descriptors", [(), ("o-value",), ("money", "o-value")], ids=["texts", "one", "both"])
def test_protobuf_messages_with_imports_and_all_kinds_of_fields_are_decoded(
    server: SchemaRegistry, descriptors: tuple[str, ...]
) -> None:
    server.register("money", MONEY, "PROTOBUF")
    number = server.register("o-value", ORDER, "PROTOBUF", AMOUNT_REFERENCE)
    reference = AMOUNT_REFERENCE
    if "money" in descriptors:
        server.register("money", in_base64(server, "money"), "PROTOBUF")
        reference = [{**AMOUNT_REFERENCE[0], "version": 2}]
    if "o-value" in descriptors:
        number = server.register("o-value", in_base64(server, "o-value"), "PROTOBUF", reference)
    found = format_of(server, Values.PROTOBUF, "o-value", "Order")
    full = protobuf(found, "Order", id=5, lines=[{"sku": "a", "count": 2}], tags={"k": 1}, color=1, big=2**64 - 1)
    full.at.FromMilliseconds(1_700_000_000_123)
    full.price.currency, full.maybe.value, full.left = "EUR", 0, "x"
    other = protobuf(found, "shop.First", a="x").SerializeToString()
    open_enum = protobuf(found, "Order", color=7).SerializeToString()
    header = write_header(number, (1,))
    rows, reasons = decoded(
        found,
        header + full.SerializeToString(),
        header,
        header + open_enum,
        write_header(number, (0,)) + other,
        write_header(number, (9,)),
        header + b"\xff\xff",
    )
    at = rows[0].pop("at")
    assert at.timestamp() == 1_700_000_000.123
    assert rows[0] == {
        "id": 5,
        "note": None,
        "lines": [{"sku": "a", "count": 2}],
        "tags": [("k", 1)],
        "color": "BLUE",
        "price": {"currency": "EUR", "amount": 0.0},
        "big": 2**64 - 1,
        "maybe": 0,
        "left": "x",
        "right": None,
    }
    assert (rows[1]["id"], rows[1]["note"], rows[1]["at"], rows[1]["maybe"]) == (0, None, None, None)
    assert rows[2]["color"] == "7"
    assert reasons[3] == "ValueError: a message shop.First, not shop.Order"
    assert reasons[4] == f"ValueError: schema {number} has no message at [9]"
    assert reasons[5].startswith("DecodeError")
    assert sorted(reasons) == [3, 4, 5]


def test_messages_are_read_by_the_numbers_of_their_fields(server: SchemaRegistry) -> None:
    first = server.register("p-value", 'syntax = "proto3"; message P { int32 n = 1; string gone = 2; }', "PROTOBUF")
    writer = format_of(server, Values.PROTOBUF, "p-value")
    old = write_header(first, (0,)) + protobuf(writer, "P", n=3, gone="x").SerializeToString()
    server.register("p-value", 'syntax = "proto3"; message P { int64 number = 1; bool added = 3; }', "PROTOBUF")
    assert decoded(format_of(server, Values.PROTOBUF, "p-value"), old) == ([{"number": 3, "added": False}], {})


@pytest.mark.parametrize(
    ("text", "message", "complaint"),
    [
        ("message {", None, "is no Protobuf schema: gregor_registered_schema.proto:1:9"),
        (
            'syntax = "proto3"; import "no/such.proto"; message A { int32 n = 1; }',
            None,
            "no/such.proto: File not found",
        ),
        ('syntax = "proto3"; message A { int32 n = 1; }', "B", "has no message B"),
        ('syntax = "proto3"; message A { A a = 1; }', None, "message A contains itself"),
        ('syntax = "proto3"; message A { }', None, "message A has no fields"),
    ],
)
def test_protobuf_schemas_that_cannot_become_columns_are_refused(
    server: SchemaRegistry, text: str, message: str | None, complaint: str
) -> None:
    server.register("p-value", text, "PROTOBUF")
    with pytest.raises((RegistryError, OptionError), match=complaint):
        format_of(server, Values.PROTOBUF, "p-value", message)


@pytest.mark.parametrize(
    "imported", ["money/amount.proto", "google/protobuf/missing.proto", "google/protobuf/../../os.proto"]
)
def test_a_descriptor_that_imports_what_it_does_not_refer_to_is_refused(server: SchemaRegistry, imported: str) -> None:
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=[imported])
    server.register("p-value", base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")
    with pytest.raises(RegistryError, match=f"imports {imported}, which it does not refer to"):
        format_of(server, Values.PROTOBUF, "p-value")


def test_an_import_cannot_leave_its_folder(server: SchemaRegistry) -> None:
    server.register("money", MONEY, "PROTOBUF")
    reference = [{"name": "../../outside.proto", "subject": "money", "version": 1}]
    server.register("p-value", 'syntax = "proto3"; message A { int32 n = 1; }', "PROTOBUF", reference)
    with pytest.raises(RegistryError, match="which is no name of a file"):
        format_of(server, Values.PROTOBUF, "p-value")


def test_a_writers_schema_that_cannot_be_used_holds_up_no_other_record(server: SchemaRegistry) -> None:
    good = server.register("p-value", 'syntax = "proto3"; message P { int32 n = 1; }', "PROTOBUF")
    bad = server.register("other-value", "message {", "PROTOBUF")
    values = [write_header(bad, (0,)), write_header(good, (0,)) + b"\x08\x03", write_header(bad, (0,))]
    rows, reasons = decoded(format_of(server, Values.PROTOBUF, "p-value"), *values)
    assert rows == [None, {"n": 3}, None]
    assert reasons[0].startswith(f"ValueError: schema {bad} is no Protobuf schema")
    assert reasons[2] == reasons[0]


# --- JSON Schema ---


def test_json_is_checked_and_read(server: SchemaRegistry) -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "name": {"type": ["string", "null"], "default": "none"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "any": {},
            "point": {"$ref": "#/definitions/point"},
            "flag": {"$ref": "flag.json"},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "maybe": {"oneOf": [{"type": "null"}, {"type": "number"}]},
            "node": {"$ref": "#/definitions/node"},
        },
        "required": ["id"],
        "definitions": {
            "point": {"type": "object", "properties": {"x": {"type": "number"}}},
            "node": {"type": "object", "properties": {"next": {"$ref": "#/definitions/node"}}},
        },
    }
    server.register("flag", {"type": "boolean"}, "JSON")
    reference = [{"name": "flag.json", "subject": "flag", "version": 1}]
    number = server.register("j-value", schema, "JSON", reference)
    found = format_of(server, Values.JSON_SCHEMA, "j-value")
    told = [
        {"id": 1, "tags": ["a"], "any": [1, {}], "point": {"x": 1}, "flag": True, "counts": {"a": 1}, "extra": 1},
        {"id": 2.0, "name": None, "maybe": 0.5},
        {"name": "x"},
        {"id": "1"},
        {"id": 2**70},
        {"id": 1, "flag": "yes"},
    ]
    header = write_header(number)
    rows, reasons = decoded(
        found, *(header + json.dumps(each).encode() for each in told), header + b"{", header + b"NaN"
    )
    assert rows[0] == {
        "id": 1,
        "name": "none",
        "tags": ["a"],
        "any": "[1, {}]",
        "point": {"x": 1.0},
        "flag": True,
        "counts": [("a", 1)],
        "maybe": None,
        "node": None,
    }
    assert (rows[1]["id"], rows[1]["name"], rows[1]["maybe"]) == (2, None, 0.5)
    assert reasons[2] == "ValueError: $: 'id' is a required property"
    assert reasons[3] == "ValueError: $.id: '1' is not of type 'integer'"
    assert "beyond the range" in reasons[4]
    assert reasons[5] == "ValueError: $.flag: 'yes' is not of type 'boolean'"
    assert sorted(reasons) == [2, 3, 4, 5, 6, 7]


def test_a_json_schema_looks_up_nothing_over_the_network(server: SchemaRegistry) -> None:
    number = server.register("j-value", {"$ref": f"{server.url}/subjects"}, "JSON")
    with pytest.raises(RegistryError, match="which its references lack"):
        format_of(server, Values.JSON_SCHEMA, "j-value")
    server.register("k-value", {"type": "object", "properties": {"n": {"type": "integer"}}}, "JSON")
    rows, reasons = decoded(format_of(server, Values.JSON_SCHEMA, "k-value"), write_header(number) + b'{"n": 1}')
    assert rows == [None]
    assert "which its references lack" in reasons[0]
    assert "/subjects" not in server.asked


# --- the client ---


def test_each_schema_is_asked_for_once(server: SchemaRegistry) -> None:
    number = server.register("t-value", PLAIN)
    client = Registry(settings(server))
    for _ in range(3):
        assert client.schema(number).text == json.dumps(PLAIN)
        with pytest.raises(UnknownSchemaError):
            client.schema(9)
    assert sorted(server.asked) == [f"/schemas/ids/{number}", "/schemas/ids/9"]


def test_an_unknown_id_is_asked_for_again_later(server: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "FORGET_UNKNOWN_S", 0.0)
    client = Registry(settings(server))
    with pytest.raises(UnknownSchemaError):
        client.schema(100)
    server.register("t-value", PLAIN)
    assert client.schema(100).number == 100


def test_a_cache_forgets_the_least_recently_used() -> None:
    cache: BoundedCache[int, int] = BoundedCache(2)
    cache.put(1, 1)
    cache.put(2, 2)
    assert cache.get(1) == 1
    cache.put(3, 3)
    assert (cache.get(1), cache.get(2), cache.get(3), len(cache)) == (1, None, 3, 2)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up after the first attempt."""
    monkeypatch.setattr(registry_module, "RetryRules", lambda: RetryRules(most_s=0.0))


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
def test_an_http_error_of_the_registry_is_raised_and_makes_no_dead_letter(server: SchemaRegistry, status: int) -> None:
    number = server.register("t-value", PLAIN)
    found = format_of(server, Values.AVRO, "t-value")
    server.refusal = status
    with pytest.raises(RegistryError, match=rf"schema registry {server.url}.*HTTP status {status}"):
        decoded(found, avro(number, PLAIN, {"n": 3}))


@pytest.mark.usefixtures("_impatient")
def test_an_unreachable_registry_is_an_error_unless_another_url_answers(server: SchemaRegistry) -> None:
    number = server.register("t-value", PLAIN)
    away = RegistrySettings.from_properties({"schema.registry.url": "http://127.0.0.1:1"})
    with pytest.raises(RegistryError, match=r"schema registry http://127\.0\.0\.1:1: .*refused"):
        Registry(away).schema(number)
    both = RegistrySettings.from_properties({"schema.registry.url": f"http://127.0.0.1:1, {server.url}/"})
    assert Registry(both).schema(number).number == number


def test_basic_authentication_takes_user_info_from_settings_or_url(server: SchemaRegistry) -> None:
    number = server.register("t-value", PLAIN)
    server.user_info = "me:p:w"
    with pytest.raises(RegistryError, match="HTTP status 401: Unauthorized"):
        Registry(settings(server)).schema(number)
    by_key = settings(server, basic_auth_user_info="me:p:w")
    assert Registry(by_key).schema(number).number == number
    assert "p:w" not in repr(by_key)
    with_url = server.url.replace("http://", "http://me:p%3Aw@")
    by_url = RegistrySettings.from_properties({"schema.registry.url": with_url})
    assert Registry(by_url).schema(number).number == number
    assert by_url.shown_url == server.url


def test_credentials_are_not_sent_to_another_server(server: SchemaRegistry) -> None:
    with running_registry() as old:
        number = server.register("t-value", PLAIN)
        old.moved_to = server.url
        assert Registry(settings(old, basic_auth_user_info="me:pw")).schema(number).number == number
        assert (len(old.authorizations), server.authorizations) == (1, [None])
        assert str(old.authorizations[0]).startswith("Basic ")


@pytest.mark.usefixtures("_impatient")
def test_a_registry_with_tls_needs_a_trusted_certificate(tmp_path: Any) -> None:
    import ssl

    authority = DevelopmentAuthority("a registry's CA", 1)
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    (tmp_path / "server.pem").write_bytes(authority.identity("registry", ["127.0.0.1"]).pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    with running_registry(context) as server:
        number = server.register("t-value", PLAIN)
        trusting = {"schema.registry.ssl.truststore.location": str(tmp_path / "ca.pem"), "ssl.truststore.type": "PEM"}
        found = RegistrySettings.from_properties({"schema.registry.url": server.url, **trusting})
        assert Registry(found).schema(number).number == number
        with pytest.raises(RegistryError, match="SSL handshake failed"):
            Registry(settings(server)).schema(number)


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({}, "schema.registry.url must be like http://host:8081"),
        ({"schema.registry.url": "host:8081"}, "schema.registry.url must be like"),
        ({"basic.auth.user.info": "me"}, "basic.auth.user.info must be NAME:PASSWORD"),
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, "must be USER_INFO or URL, not 'SASL_INHERIT'"),
        ({"basic.auth.userinfo": "a:b"}, "unknown configuration basic.auth.userinfo"),
        ({"schema.registry.request.timeout.ms": "0"}, "must be at least 1"),
        ({"ssl.truststore.type": "ZIP"}, "schema registry: "),
    ],
)
def test_invalid_registry_settings_are_refused(properties: dict[str, str], complaint: str) -> None:
    given = {"schema.registry.url": "http://host", **properties} if properties else {}
    with pytest.raises(OptionError, match=complaint):
        RegistrySettings.from_properties(given)


def test_unknown_subjects_versions_and_wrong_formats_are_refused(server: SchemaRegistry) -> None:
    server.register("t-value", PLAIN)
    for subject, complaint in (("no", "Subject 'no' not found"), ("t-value:7", "Version 7 not found")):
        with pytest.raises(OptionError, match=complaint):
            format_of(server, Values.AVRO, subject)
    with pytest.raises(OptionError, match="the subject's schema is of kind AVRO, and values are protobuf"):
        format_of(server, Values.PROTOBUF, "t-value")
    with pytest.raises(OptionError, match="values as raw have no schemas"):
        format_of(server, Values.RAW, "t-value")


def test_schemas_that_refer_to_themselves_are_refused(server: SchemaRegistry) -> None:
    around = [{"name": "a", "subject": "a", "version": 1}]
    server.register("a", PLAIN, references=around)
    with pytest.raises(RegistryError, match="refers to too many schemas, or to itself"):
        format_of(server, Values.AVRO, "a")
