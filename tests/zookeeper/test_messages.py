"""Requests and replies of ZooKeeper's protocol, compared with those of kazoo, and with bytes of no client."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.protocol import serialization as kazoo
from kazoo.security import ACL, Id

from gregor.zookeeper.jute import JuteError
from gregor.zookeeper.keeper_errors import KeeperCode
from gregor.zookeeper.messages import (
    OPEN_ACL,
    Acl,
    Auth,
    Check,
    CloseSession,
    Create,
    Delete,
    EventType,
    Exists,
    GetAcl,
    GetChildren,
    GetData,
    Multi,
    MultiResult,
    OpCode,
    Ping,
    SetAcl,
    SetData,
    SetWatches,
    Stat,
    Sync,
    decode_connect,
    decode_request,
    encode_acl,
    encode_children,
    encode_connect_reply,
    encode_event,
    encode_multi,
    encode_reply,
    encode_stat,
)

OPEN = [ACL(31, Id("world", "anyone"))]
REQUESTS = [
    (kazoo.Create("/a/é", b"data", OPEN, 3), Create("/a/é", b"data", OPEN_ACL, 3)),
    (kazoo.Create2("/a", b"", OPEN, 0), Create("/a", b"", OPEN_ACL, 0, with_stat=True)),
    (kazoo.Delete("/a", 7), Delete("/a", 7)),
    (kazoo.Exists("/a", True), Exists("/a", True)),
    (kazoo.GetData("/a", None), GetData("/a", False)),
    (kazoo.SetData("/a", b"\0" * 300, -1), SetData("/a", b"\0" * 300, -1)),
    (kazoo.GetACL("/a"), GetAcl("/a")),
    (kazoo.SetACL("/a", [*OPEN, ACL(1, Id("ip", "::1"))], 2), SetAcl("/a", (*OPEN_ACL, Acl(1, "ip", "::1")), 2)),
    (kazoo.GetChildren("/", True), GetChildren("/", True)),
    (kazoo.GetChildren2("/", None), GetChildren("/", False, with_stat=True)),
    (kazoo.Sync("/a"), Sync("/a")),
    (
        kazoo.Transaction([kazoo.CheckVersion("/a", 1), kazoo.Delete("/b", -1), kazoo.SetData("/c", b"1", 0)]),
        Multi((Check("/a", 1), Delete("/b", -1), SetData("/c", b"1", 0))),
    ),
    (kazoo.Transaction([]), Multi(())),
    (kazoo.Auth(0, "digest", "a:b"), Auth()),
]
BARE_REQUESTS = [(kazoo.Ping, Ping()), (kazoo.Close, CloseSession())]
NUMBERS = st.integers(-(1 << 31), (1 << 31) - 1)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)


def frame(op: int, body: bytes, xid: int = 5) -> bytes:
    return struct.pack(">ii", xid, op) + body


@pytest.mark.parametrize(("sent", "expected"), REQUESTS, ids=lambda value: type(value).__name__)
def test_requests_of_kazoo_are_decoded(sent: kazoo.Create, expected: Create) -> None:
    assert decode_request(frame(sent.type, bytes(sent.serialize()))) == (5, expected)


@pytest.mark.parametrize(("sent", "expected"), BARE_REQUESTS, ids=lambda value: type(value).__name__)
def test_requests_without_a_body_are_decoded(sent: type[kazoo.Ping], expected: Ping) -> None:
    assert decode_request(frame(sent.type, b"", xid=-2)) == (-2, expected)


@pytest.mark.parametrize(("sent", "_"), REQUESTS, ids=lambda value: type(value).__name__)
def test_a_request_that_ends_early_is_refused(sent: kazoo.Create, _: Create) -> None:
    whole = frame(sent.type, bytes(sent.serialize()))
    for end in range(len(whole)):
        with pytest.raises(JuteError):
            decode_request(whole[:end])


def test_set_watches_requests_are_decoded() -> None:
    strings = struct.pack(">ii", 1, 2) + b"/a"
    assert decode_request(frame(OpCode.SET_WATCHES, struct.pack(">q", 9) + strings * 3)) == (
        5,
        SetWatches(9, ["/a"], ["/a"], ["/a"]),
    )


def test_a_request_of_an_unknown_type_is_decoded_as_none() -> None:
    assert decode_request(frame(16, b"whatever")) == (5, None)


def test_a_null_buffer_is_none_and_an_empty_one_is_not() -> None:
    path = struct.pack(">i", 2) + b"/a"
    for length, data in ((-1, None), (0, b"")):
        body = path + struct.pack(">ii", length, -1)
        assert decode_request(frame(OpCode.SET_DATA, body)) == (5, SetData("/a", data, -1))


@pytest.mark.parametrize("count", [-2, 1 << 20, (1 << 31) - 1])
def test_a_vector_with_an_impossible_count_is_refused(count: int) -> None:
    with pytest.raises(JuteError):
        decode_request(frame(OpCode.SET_WATCHES, struct.pack(">qi", 0, count) + bytes(64)))


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(JuteError):
        decode_request(frame(OpCode.SYNC, struct.pack(">i", 2) + b"/\xff"))


@given(st.binary(max_size=200), st.sampled_from([*OpCode, 16, 0]))
def test_any_bytes_are_decoded_or_refused(body: bytes, op: int) -> None:
    for whole in (body, frame(op, body)):
        try:
            decode_request(whole)
            decode_connect(whole)
        except JuteError:
            continue


@given(LONGS, NUMBERS, LONGS, st.booleans())
def test_a_connect_request_is_decoded_and_kazoo_reads_its_reply(
    zxid: int, timeout_ms: int, session_id: int, read_only: bool
) -> None:
    sent = bytes(kazoo.Connect(0, zxid, timeout_ms, session_id, b"p" * 16, True).serialize())
    request = decode_connect(sent if read_only else sent[:-1])
    assert (request.last_zxid_seen, request.timeout_ms, request.session_id) == (zxid, timeout_ms, session_id)
    assert (request.password, request.has_read_only) == (b"p" * 16, read_only)
    reply = encode_connect_reply(timeout_ms, session_id, b"q" * 16, with_read_only=read_only)
    answer, _ = kazoo.Connect.deserialize(reply, 0)
    assert (answer.time_out, answer.session_id, answer.passwd) == (timeout_ms, session_id, b"q" * 16)
    assert len(reply) == 36 + read_only


@given(LONGS, LONGS, NUMBERS, NUMBERS, st.binary(max_size=20), st.lists(st.text(max_size=5), max_size=5))
def test_replies_are_read_by_kazoo(
    czxid: int, time_ms: int, version: int, count: int, data: bytes, names: list[str]
) -> None:
    stat = Stat(czxid, czxid, time_ms, time_ms, version, version, version, czxid, len(data), count, czxid)
    sized = struct.pack(">i", len(data)) + data
    assert kazoo.GetData.deserialize(sized + encode_stat(stat), 0) == (data, kazoo.ZnodeStat(*stat))
    assert kazoo.GetChildren.deserialize(encode_children(names), 0) == names
    assert kazoo.GetChildren2.deserialize(encode_children(names) + encode_stat(stat), 0) == (
        names,
        kazoo.ZnodeStat(*stat),
    )
    assert kazoo.GetACL.deserialize(encode_acl(OPEN_ACL) + encode_stat(stat), 0) == (OPEN, kazoo.ZnodeStat(*stat))


def test_events_and_errors_are_read_by_kazoo() -> None:
    event = encode_event(EventType.NODE_CHILDREN_CHANGED, "/a")
    header, position = kazoo.ReplyHeader.deserialize(event, 0)
    assert (header.xid, header.zxid, header.err) == (-1, -1, 0)
    watch, _ = kazoo.Watch.deserialize(event, position)
    assert (watch.type, watch.state, watch.path) == (4, 3, "/a")
    header, _ = kazoo.ReplyHeader.deserialize(encode_reply(3, 17, KeeperCode.NONODE), 0)
    assert (header.xid, header.zxid, header.err) == (3, 17, -101)


def test_results_of_a_multi_request_are_read_by_kazoo() -> None:
    stat = Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
    done = [
        MultiResult(OpCode.CREATE, struct.pack(">i", 2) + b"/a"),
        MultiResult(OpCode.DELETE, b""),
        MultiResult(OpCode.SET_DATA, encode_stat(stat)),
        MultiResult(OpCode.CHECK, b""),
    ]
    results = kazoo.Transaction.deserialize(encode_multi(done), 0)
    assert results == ["/a", True, kazoo.ZnodeStat(*stat), True]
    failed = [MultiResult(None, b"", code) for code in (KeeperCode.OK, KeeperCode.NONODE)]
    errors = kazoo.Transaction.deserialize(encode_multi(failed), 0)
    assert [type(error).__name__ for error in errors] == ["RolledBackError", "NoNodeError"]
