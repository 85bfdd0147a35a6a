"""``python confluent_values.py URL write | read``: values by the serializers of confluent-kafka, in hexadecimal.

A program of its own, since it runs with another version of its libraries than the tests. `write` registers the schemas
and prints a line for each kind; `read` takes such lines and prints the values as JSON.
"""

import json
import sys
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

ORDER = {"id": 7, "note": "x"}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
JSON = {
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "note": {"type": "string"}},
}


def protobuf_class() -> Any:
    """Return the class of the second message of a file that imports another one."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    other = file.message_type.add(name="Other")
    other.field.add(name="at", number=1, type=11, label=1, type_name=".google.protobuf.Timestamp")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="note", number=2, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def context(kind: str) -> Any:
    """Return the place of a value: its topic has the name of its kind."""
    return SerializationContext(kind, MessageField.VALUE)


def main(url: str, action: str) -> None:
    """Write or read the three values."""
    client = SchemaRegistryClient({"url": url})
    order_class = protobuf_class()
    if action == "write":
        protobuf = ProtobufSerializer(order_class, client, {"use.deprecated.format": False, "skip.known.types": True})
        values = {
            "avro": AvroSerializer(client, json.dumps(AVRO))(ORDER, context("avro")),
            "json": JSONSerializer(json.dumps(JSON), client)(ORDER, context("json")),
            "protobuf": protobuf(order_class(**ORDER), context("protobuf")),
        }
        for kind, value in values.items():
            print(kind, value.hex())
        return
    readers = {
        "avro": AvroDeserializer(client),
        "json": JSONDeserializer(json.dumps(JSON)),
        "protobuf": ProtobufDeserializer(order_class, {"use.deprecated.format": False}),
    }
    for line in sys.stdin:
        kind, value = line.split()
        read = readers[kind](bytes.fromhex(value), context(kind))
        print(kind, json.dumps(read if kind != "protobuf" else {"id": read.id, "note": read.note}))


main(*sys.argv[1:])
