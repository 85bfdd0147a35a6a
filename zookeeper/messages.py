"""ZooKeeper's requests and replies, as in its `zookeeper.jute` and `ZooDefs.OpCode`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, TypeAlias

from .jute import BOOLEAN, INT, JuteError, JuteReader, encode_buffer, encode_string, encode_strings
from .keeper_errors import KeeperCode

CONNECT_REPLY = Struct(">iiq")
REPLY_HEADER = Struct(">iqi")
STAT = Struct(">qqqqiiiqiiq")
MULTI_HEADER = Struct(">i?i")

NOTIFICATION_XID = -1
NOTIFICATION_ZXID = -1
SYNC_CONNECTED = 3
"""The state in watch events (`Watcher.Event.KeeperState`)."""
PASSWORD_BYTES = 16
NO_PASSWORD = bytes(PASSWORD_BYTES)
ANY_VERSION = -1
LEAST_STRING_BYTES = 4
LEAST_ACL_BYTES = 12


class OpCode(IntEnum):
    """A type of request (`ZooDefs.OpCode`), of those that are served."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    AUTH = 100
    SET_WATCHES = 101
    CLOSE_SESSION = -11


class EventType(IntEnum):
    """A type of watch event (`Watcher.Event.EventType`)."""

    NODE_CREATED = 1
    NODE_DELETED = 2
    NODE_DATA_CHANGED = 3
    NODE_CHILDREN_CHANGED = 4


class CreateMode(IntEnum):
    """A mode of a new node (`CreateMode`), of those that ZooKeeper 3.4 knows."""

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3

    @property
    def is_ephemeral(self) -> bool:
        """Whether the node is deleted with its session."""
        return bool(self & 1)

    @property
    def is_sequential(self) -> bool:
        """Whether the server appends a number to the name."""
        return bool(self & 2)


class Acl(NamedTuple):
    """An entry of an access control list: permissions, scheme and id. Lists are kept, and not enforced."""

    permissions: int
    scheme: str
    id: str


OPEN_ACL = (Acl(31, "world", "anyone"),)
"""All permissions for everyone (`ZooDefs.Ids.OPEN_ACL_UNSAFE`)."""


class Stat(NamedTuple):
    """A node's statistics: transaction ids (zxid), times in milliseconds since 1970, versions and counts."""

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class ConnectRequest(NamedTuple):
    """The first request of a connection: a new session (session id 0), or one that moves to this connection."""

    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes
    has_read_only: bool
    """Whether the client sent the field `readOnly`, which clients of 3.4 and newer read in the reply too."""


class Create(NamedTuple):
    """A request to create a node; `with_stat` for create2, whose reply has the node's statistics."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    flags: int
    with_stat: bool = False


class Delete(NamedTuple):
    """A request to delete a node."""

    path: str
    version: int


class Exists(NamedTuple):
    """A request for a node's statistics."""

    path: str
    watch: bool


class GetData(NamedTuple):
    """A request for a node's data."""

    path: str
    watch: bool


class SetData(NamedTuple):
    """A request to replace a node's data."""

    path: str
    data: bytes | None
    version: int


class GetAcl(NamedTuple):
    """A request for a node's access control list."""

    path: str


class SetAcl(NamedTuple):
    """A request to replace a node's access control list."""

    path: str
    acl: tuple[Acl, ...]
    version: int


class GetChildren(NamedTuple):
    """A request for the names of a node's children; `with_stat` for getChildren2."""

    path: str
    watch: bool
    with_stat: bool = False


class Sync(NamedTuple):
    """A request to wait for earlier writes; with a single server nothing is left to wait for."""

    path: str


class Check(NamedTuple):
    """A condition inside a multi request: the node has this version."""

    path: str
    version: int


class Multi(NamedTuple):
    """A request of several writes, of which all or none are done."""

    writes: tuple[Create | Delete | SetData | Check, ...]


class SetWatches(NamedTuple):
    """The watches of a client that has reconnected; events since `relative_zxid` are sent at once."""

    relative_zxid: int
    data: list[str]
    exist: list[str]
    child: list[str]


class Ping(NamedTuple):
    """A request that keeps the session alive."""


class Auth(NamedTuple):
    """A request to authenticate, which is accepted and has no effect."""


class CloseSession(NamedTuple):
    """A request to end the session."""


Request: TypeAlias = (
    Create
    | Delete
    | Exists
    | GetData
    | SetData
    | GetAcl
    | SetAcl
    | GetChildren
    | Sync
    | Multi
    | SetWatches
    | Ping
    | Auth
    | CloseSession
)


def decode_connect(frame: bytes | memoryview) -> ConnectRequest:
    """Decode the first frame of a connection. Raises JuteError."""
    reader = JuteReader(frame)
    reader.read_int()
    request = ConnectRequest(
        last_zxid_seen=reader.read_long(),
        timeout_ms=reader.read_int(),
        session_id=reader.read_long(),
        password=reader.read_buffer() or b"",
        has_read_only=reader.remaining_bytes > 0,
    )
    if request.has_read_only:
        reader.read_boolean()
    return request


def encode_connect_reply(timeout_ms: int, session_id: int, password: bytes, *, with_read_only: bool) -> bytes:
    """Return the reply to ConnectRequest; a session id and a timeout of 0 mean that the session has expired."""
    reply = CONNECT_REPLY.pack(0, timeout_ms, session_id) + encode_buffer(password)
    return reply + BOOLEAN.pack(False) if with_read_only else reply


def decode_request(frame: bytes | memoryview) -> tuple[int, Request | None]:
    """Decode a request; return its xid, and None for a type that is not served. Raises JuteError."""
    reader = JuteReader(frame)
    xid, op = reader.read_int(), reader.read_int()
    decoder = _DECODERS.get(op)
    return xid, None if decoder is None else decoder(reader)


def _acl(reader: JuteReader) -> tuple[Acl, ...]:
    return tuple(
        reader.read_vector(lambda: Acl(reader.read_int(), reader.read_string(), reader.read_string()), LEAST_ACL_BYTES)
    )


def _strings(reader: JuteReader) -> list[str]:
    return reader.read_vector(reader.read_string, LEAST_STRING_BYTES)


def _create(reader: JuteReader) -> Create:
    return Create(reader.read_string(), reader.read_buffer(), _acl(reader), reader.read_int())


def _create2(reader: JuteReader) -> Create:
    return _create(reader)._replace(with_stat=True)


def _delete(reader: JuteReader) -> Delete:
    return Delete(reader.read_string(), reader.read_int())


def _set_data(reader: JuteReader) -> SetData:
    return SetData(reader.read_string(), reader.read_buffer(), reader.read_int())


def _check(reader: JuteReader) -> Check:
    return Check(reader.read_string(), reader.read_int())


def _multi(reader: JuteReader) -> Multi:
    writes: list[Create | Delete | SetData | Check] = []
    while True:
        op, is_done = reader.read_int(), reader.read_boolean()
        reader.read_int()
        if is_done:
            return Multi(tuple(writes))
        decoder = _WRITE_DECODERS.get(op)
        if decoder is None:
            raise JuteError(f"operation {op} in a multi request")
        writes.append(decoder(reader))


def _auth(reader: JuteReader) -> Auth:
    reader.read_int()
    reader.read_string()
    reader.read_buffer()
    return Auth()


_WRITE_DECODERS: dict[int, Callable[[JuteReader], Create | Delete | SetData | Check]] = {
    OpCode.CREATE: _create,
    OpCode.CREATE2: _create2,
    OpCode.DELETE: _delete,
    OpCode.SET_DATA: _set_data,
    OpCode.CHECK: _check,
}
_DECODERS: dict[int, Callable[[JuteReader], Request]] = {
    OpCode.CREATE: _create,
    OpCode.CREATE2: _create2,
    OpCode.DELETE: _delete,
    OpCode.SET_DATA: _set_data,
    OpCode.EXISTS: lambda reader: Exists(reader.read_string(), reader.read_boolean()),
    OpCode.GET_DATA: lambda reader: GetData(reader.read_string(), reader.read_boolean()),
    OpCode.GET_ACL: lambda reader: GetAcl(reader.read_string()),
    OpCode.SET_ACL: lambda reader: SetAcl(reader.read_string(), _acl(reader), reader.read_int()),
    OpCode.GET_CHILDREN: lambda reader: GetChildren(reader.read_string(), reader.read_boolean()),
    OpCode.GET_CHILDREN2: lambda reader: GetChildren(reader.read_string(), reader.read_boolean(), with_stat=True),
    OpCode.SYNC: lambda reader: Sync(reader.read_string()),
    OpCode.MULTI: _multi,
    OpCode.SET_WATCHES: lambda reader: SetWatches(
        reader.read_long(), _strings(reader), _strings(reader), _strings(reader)
    ),
    OpCode.PING: lambda reader: Ping(),
    OpCode.AUTH: _auth,
    OpCode.CLOSE_SESSION: lambda reader: CloseSession(),
}


def encode_reply(xid: int, zxid: int, code: KeeperCode, body: bytes = b"") -> bytes:
    """Return a reply; `body` is empty if `code` is an error."""
    return REPLY_HEADER.pack(xid, zxid, code) + body


def encode_event(event: EventType, path: str) -> bytes:
    """Return the notification of a watch event."""
    header = REPLY_HEADER.pack(NOTIFICATION_XID, NOTIFICATION_ZXID, KeeperCode.OK)
    return header + INT.pack(event) + INT.pack(SYNC_CONNECTED) + encode_string(path)


def encode_stat(stat: Stat) -> bytes:
    """Return a node's statistics."""
    return STAT.pack(*stat)


def encode_acl(acl: Sequence[Acl]) -> bytes:
    """Return an access control list."""
    entries = [INT.pack(entry.permissions) + encode_string(entry.scheme) + encode_string(entry.id) for entry in acl]
    return INT.pack(len(entries)) + b"".join(entries)


def encode_children(names: Sequence[str]) -> bytes:
    """Return the names of a node's children."""
    return encode_strings(names)


class MultiResult(NamedTuple):
    """A result of one write of a multi request: its type and body, or only an error code."""

    op: OpCode | None
    body: bytes
    code: KeeperCode = KeeperCode.OK


def encode_multi(results: Sequence[MultiResult]) -> bytes:
    """Return the results of a multi request (`MultiResponse`); a result without `op` is an error."""
    encoded = []
    for result in results:
        if result.op is None:
            encoded.append(MULTI_HEADER.pack(-1, False, result.code) + INT.pack(result.code))
        else:
            encoded.append(MULTI_HEADER.pack(result.op, False, KeeperCode.OK) + result.body)
    return b"".join(encoded) + MULTI_HEADER.pack(-1, True, -1)
