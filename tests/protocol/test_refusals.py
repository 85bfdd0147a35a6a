"""An error code in the right fields of every API's responses, and entries taken out of requests."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.broker.api.table import APIS
from gregor.protocol.apis import AnyApiKey, ApiKey, request_class, response_class
from gregor.protocol.codec import decode, encode
from gregor.protocol.codec_layout import ArrayOf, StructLayout
from gregor.protocol.errors import ErrorCode
from gregor.protocol.message_places import carried_fields, entries_of, layout_of, places_in
from gregor.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from gregor.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from gregor.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from gregor.protocol.refusals import has_top_level_error, is_empty, merge, refuse_entries, refused, take_out
from gregor.protocol.schema import FixedSize, LengthPrefixed, Message, Struct

CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
VERSIONS = [
    pytest.param(api.key, version, id=f"{api.key.name} v{version}")
    for api in APIS.values()
    for version in {api.min_version, (api.min_version + api.max_version) // 2, api.max_version}
]
WITHOUT_ERRORS = {"DESCRIBE_CLIENTS"}


def filled(layout: StructLayout) -> Struct:
    """Return a structure with one entry in each list, named `orders` where it has a name, of partition 3 if of any."""
    values: dict[str, Any] = {}
    for field in carried_fields(layout):
        entries = entries_of(field)
        if entries is not None:
            values[field.name] = [filled(entries)]
        elif isinstance(field.wire, ArrayOf):
            is_number = isinstance(field.wire.element, FixedSize) and field.wire.element.code in "bhiq"
            values[field.name] = (
                [3] if is_number else ["orders"] if isinstance(field.wire.element, LengthPrefixed) else []
            )
        elif field.name in ("name", "topic", "topic_name"):
            values[field.name] = "orders"
        elif field.name in ("partition", "partition_index", "partition_id", "index"):
            values[field.name] = 3
    return layout.cls(**values)


def nobody(topic_id: object) -> None:
    return None


def codes(struct: Struct) -> list[int]:
    """Return every error code in a message."""
    found = []
    for name in struct.FIELD_DEFAULTS:
        value = getattr(struct, name)
        if name in ("error_code", "partition_error_code"):
            found.append(value)
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Struct):
                found += codes(inner)
    return found


def back_from_the_wire(response: Message, version: int) -> Message:
    return decode(type(response), encode(response, version), version)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_an_error_response_to_a_whole_request_has_the_error_code(key: AnyApiKey, version: int) -> None:
    cls = response_class(key)
    if has_top_level_error(cls, version):
        return
    request = filled(layout_of(request_class(key), version))
    told = codes(back_from_the_wire(refused(request, cls, version, CODE), version))
    assert CODE in told or key.name.startswith(("DESCRIBE", "LIST_")) or key is ApiKey.METADATA


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_the_entries_of_every_response_can_be_set_to_an_error_code(key: AnyApiKey, version: int) -> None:
    cls = response_class(key)
    response = filled(layout_of(cls, version))
    if has_top_level_error(cls, version):
        return
    refuse_entries(response, layout_of(cls, version), CODE, lambda topic, partition: True, nobody)
    assert isinstance(response, Message)
    assert set(codes(back_from_the_wire(response, version))) - {0} == {CODE}


PLACED = {
    "ADD_PARTITIONS_TO_TXN",
    "ALTER_PARTITION_REASSIGNMENTS",
    "ALTER_REPLICA_LOG_DIRS",
    "CREATE_PARTITIONS",
    "CREATE_TOPICS",
    "DELETE_RECORDS",
    "DELETE_TOPICS",
    "DESCRIBE_PRODUCERS",
    "DESCRIBE_TOPIC_PARTITIONS",
    "ELECT_LEADERS",
    "FETCH",
    "LIST_OFFSETS",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_DELETE",
    "OFFSET_FETCH",
    "OFFSET_FOR_LEADER_EPOCH",
    "PRODUCE",
    "TXN_OFFSET_COMMIT",
    "WRITE_TXN_MARKERS",
}


@pytest.mark.parametrize(("key", "version"), [row for row in VERSIONS if row.values[0].name in PLACED])  # type: ignore[union-attr]
def test_a_topic_is_found_taken_out_and_refused_alone(key: AnyApiKey, version: int) -> None:
    if key is ApiKey.FETCH and version >= 13:
        pytest.skip("names topics by id")
    request = filled(layout_of(request_class(key), version))
    assert {topic for topic, _ in places_in(request, nobody)} == {"orders"}
    assert take_out(request, lambda topic, partition: topic == "others", nobody) is None
    taken = take_out(request, lambda topic, partition: topic == "orders", nobody)
    assert taken is not None
    assert not list(places_in(request, nobody))
    answer = back_from_the_wire(refused(taken, response_class(key), version, CODE), version)
    assert set(codes(answer)) - {0} == {CODE}
    assert "orders" in {topic for topic, _ in places_in(answer, nobody)}


@pytest.mark.parametrize(("key", "version"), [row for row in VERSIONS if row.values[0].name in PLACED])  # type: ignore[union-attr]
def test_refusing_another_topic_sets_no_error_code(key: AnyApiKey, version: int) -> None:
    cls = response_class(key)
    response = filled(layout_of(cls, version))
    refuse_entries(response, layout_of(cls, version), CODE, lambda topic, partition: topic == "others", nobody)
    assert set(codes(response)) == {0}


def test_refusals_of_scram_changes_name_the_users() -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="anna")], upsertions=[ScramCredentialUpsertion(name="bert")]
    )
    answer = refused(request, AlterUserScramCredentialsResponse, 0, CODE)
    assert isinstance(answer, AlterUserScramCredentialsResponse)
    assert [(result.user, result.error_code) for result in answer.results] == [("anna", CODE), ("bert", CODE)]


def commit(*places: tuple[str, int]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[OffsetCommitRequestPartition(partition_index=p) for t, p in places if t == topic],
            )
            for topic in dict(places)
        ],
    )


def test_a_request_is_split_at_refused_partitions_and_its_responses_are_merged() -> None:
    request = commit(("a", 0), ("a", 1), ("b", 0))
    taken = take_out(request, lambda topic, partition: (topic, partition) in {("a", 1), ("b", 0)}, nobody)
    assert list(places_in(request, nobody)) == [("a", 0)]
    assert taken is not None
    assert list(places_in(taken, nobody)) == [("a", 1), ("b", 0)]
    assert not is_empty(request)
    done = OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name="a", partitions=[OffsetCommitResponsePartition(partition_index=0)])]
    )
    merge(done, refused(taken, OffsetCommitResponse, 8, CODE))
    assert [(t.name, p.partition_index, p.error_code) for t in done.topics for p in t.partitions] == [
        ("a", 0, 0),
        ("a", 1, CODE),
        ("b", 0, CODE),
    ]


def test_nested_entries_taken_out_keep_the_producer_id_of_their_marker() -> None:
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(producer_id=7, topics=[WritableTxnMarkerTopic(name="a", partition_indexes=[0, 1])]),
            WritableTxnMarker(producer_id=8, topics=[WritableTxnMarkerTopic(name="b", partition_indexes=[0])]),
        ]
    )
    taken = take_out(request, lambda topic, partition: topic == "a" and partition == 1, nobody)
    assert taken is not None
    answer = refused(taken, WriteTxnMarkersResponse, 1, CODE)
    assert isinstance(answer, WriteTxnMarkersResponse)
    (marker,) = answer.markers
    assert marker.producer_id == 7
    assert [(t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in marker.topics] == [
        ("a", [(1, CODE)])
    ]
    assert [m.producer_id for m in request.markers] == [7, 8]
