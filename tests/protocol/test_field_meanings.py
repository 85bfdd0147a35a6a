"""Meanings of fields: entities, lists of entities, senders, and mentioned entities."""

from __future__ import annotations

from typing import Annotated

from gregor.protocol.field_meanings import field_meanings, fields_of, sender_fields
from gregor.protocol.messages.fetch import FetchRequest, FetchTopic
from gregor.protocol.messages.produce import PartitionProduceData
from gregor.protocol.messages.unregister_broker import UnregisterBrokerRequest
from gregor.protocol.schema import (
    MENTIONED,
    MINUS_ONE_ON_ERROR,
    Entity,
    Int64,
    PartitionIndex,
    Struct,
    TopicName,
    Versions,
)


class Page(Struct):
    topic: TopicName | None = None
    others: Annotated[list[TopicName], Versions("1+"), MENTIONED] = []
    partitions: list[PartitionIndex] = []
    end_offset: Annotated[Int64, MINUS_ONE_ON_ERROR] = 0


class Book(Struct):
    pages: Annotated[list[Page] | None, Versions("1+")] = []


def test_entities_are_found_in_values_that_may_be_null_and_in_lists() -> None:
    meanings = field_meanings(Page)
    assert [meaning.entity for meaning in meanings.values()] == [
        Entity.TOPIC_NAME,
        Entity.TOPIC_NAME,
        Entity.PARTITION_INDEX,
        None,
    ]
    assert [name for name, meaning in meanings.items() if meaning.is_list] == ["others", "partitions"]
    assert [name for name, meaning in meanings.items() if meaning.is_mentioned] == ["others"]
    assert [name for name, meaning in meanings.items() if meaning.is_minus_one_on_error] == ["end_offset"]


def test_fields_of_an_entity_exclude_lists() -> None:
    assert fields_of(Page, Entity.TOPIC_NAME) == ("topic",)
    assert fields_of(Page, Entity.PARTITION_INDEX) == ()
    assert fields_of(FetchTopic, Entity.TOPIC_ID) == ("topic_id",)
    assert fields_of(PartitionProduceData, Entity.PARTITION_INDEX) == ("index",)


def test_field_meanings_include_the_structures_in_lists() -> None:
    meaning = field_meanings(Book)["pages"]
    assert meaning.structure is Page
    assert meaning.is_list


def test_sender_fields_exclude_brokers_that_a_request_is_about() -> None:
    assert sender_fields(FetchRequest) == (("replica_id",), ("replica_state", "replica_id"))
    assert sender_fields(UnregisterBrokerRequest) == ()
