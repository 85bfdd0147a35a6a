"""The meanings of fields in our schemas beside the facts in those of Apache Kafka 3.9 and 4."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gregor.protocol.field_meanings import FieldMeaning, field_meanings
from gregor.protocol.schema import Entity, Message, Struct
from tests.protocol.random_messages import message_classes

KafkaField: TypeAlias = Mapping[str, Any]
KAFKA_ENTITIES = {
    Entity.BROKER_ID,
    Entity.GROUP_ID,
    Entity.PRODUCER_ID,
    Entity.TOPIC_NAME,
    Entity.TRANSACTIONAL_ID,
}
PARTITION_NAMES = {("partition", "int32"), ("partitionindex", "int32"), ("partitionid", "int32")}
PARTITION_NAMES |= {("partitions", "[]int32"), ("partitionindexes", "[]int32")}


def plain(name: str) -> str:
    """Return a name in Kafka's or our notation without case and underscores."""
    return name.replace("_", "").lower()


def pairs(
    cls: type[Struct], fields: Sequence[KafkaField], common: Mapping[str, Sequence[KafkaField]]
) -> Iterator[tuple[str, FieldMeaning, KafkaField]]:
    """Yield our name, our meaning and Kafka's declaration of each field that both have, structures inside included."""
    theirs = {plain(field["name"]): field for field in fields}
    for name, meaning in field_meanings(cls).items():
        field = theirs.get(plain(name))
        if field is None:
            continue
        yield f"{cls.__name__}.{name}", meaning, field
        inside = field.get("fields") or common.get(field["type"].removeprefix("[]"))
        if inside and meaning.structure is not None:
            yield from pairs(meaning.structure, inside, common)


def declared_by_kafka(shared: Path, version: str) -> Iterator[tuple[type[Message], KafkaField]]:
    """Yield our class and Kafka's declaration of each message that both have."""
    tables = json.loads((shared / "protocol" / f"messages-{version}.json").read_text())
    messages = [api[side] for api in tables["apis"].values() for side in ("request", "response") if api.get(side)]
    messages += tables["other"].values()
    by_name = {message["name"]: message for message in messages}
    for cls in message_classes():
        if cls.__name__ in by_name:
            yield cls, by_name[cls.__name__]


def our_entity(meaning: FieldMeaning, field: KafkaField) -> Entity | None:
    """Return the entity that Kafka's declaration of a field asks for, in our words."""
    kafkas = field.get("entityType")
    if kafkas is not None:
        return Entity(kafkas)
    name, wire = plain(field["name"]), field["type"]
    if name.endswith("errorcode") and wire == "int16":
        return Entity.ERROR_CODE
    if name == "topicid" and wire == "uuid":
        return Entity.TOPIC_ID
    if (name, wire) in PARTITION_NAMES:
        return Entity.PARTITION_INDEX
    return None if meaning.entity in KAFKA_ENTITIES else meaning.entity


@pytest.mark.parametrize("version", ["3.9", "4.x"])
def test_every_entity_type_of_kafka_is_ours(shared: Path, version: str) -> None:
    compared = 0
    for cls, kafka in declared_by_kafka(shared, version):
        common = {struct["name"]: struct["fields"] for struct in kafka.get("commonStructs", ())}
        for name, meaning, field in pairs(cls, kafka["fields"], common):
            if version == "4.x" or "entityType" in field or meaning.entity not in KAFKA_ENTITIES:
                assert meaning.entity is our_entity(meaning, field), name
            compared += 1
    assert compared > 1_000
