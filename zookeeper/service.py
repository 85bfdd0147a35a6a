"""The replies to ZooKeeper's requests, from the tree, the sessions and Kafka.

The service has no sockets and no event loop: a connection gives it frames and sends what it returns. Requests of one
connection are answered one after the other; a request that waits for Kafka delays no other connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..protocol.errors import BrokerError, ErrorCode
from .broker_nodes import BrokerNodes
from .consumer_offsets import ConsumerOffsets, OffsetsPlace, offsets_place
from .jute import encode_buffer, encode_string
from .kafka_cluster import ClientAddress, KafkaCluster
from .keeper_errors import KeeperCode, KeeperError
from .limits import Limits
from .messages import (
    NO_PASSWORD,
    Auth,
    Check,
    CloseSession,
    Create,
    CreateMode,
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
    Request,
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
    encode_multi,
    encode_reply,
    encode_stat,
)
from .paths import check_path, names_in
from .sessions import Session, Sessions
from .topic_changes import TopicChanges
from .tree import DataTree, Node, Origin

logger = logging.getLogger(__name__)

ZXID_EPOCH_BITS = 32
KAFKAS_OWN = ("brokers", "controller", "controller_epoch", "cluster", "zookeeper")
"""First names of the paths where clients create no nodes; a new node below `/brokers/topics` creates a topic."""
CONSUMED = Stat(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
"""The statistics of a node that its creation has already brought to an end, in `/admin/delete_topics`."""
REFUSALS = {
    ErrorCode.TOPIC_ALREADY_EXISTS: KeeperCode.NODEEXISTS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: KeeperCode.NONODE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: KeeperCode.NOAUTH,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: KeeperCode.NOAUTH,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: KeeperCode.NOAUTH,
    ErrorCode.TOPIC_DELETION_DISABLED: KeeperCode.NOAUTH,
    ErrorCode.POLICY_VIOLATION: KeeperCode.NOAUTH,
    # Only members commit the offsets of a group that has members, with Kafka's protocol.
    ErrorCode.UNKNOWN_MEMBER_ID: KeeperCode.NOAUTH,
    ErrorCode.ILLEGAL_GENERATION: KeeperCode.NOAUTH,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: KeeperCode.NOAUTH,
    ErrorCode.INVALID_TOPIC_EXCEPTION: KeeperCode.BADARGUMENTS,
    ErrorCode.INVALID_GROUP_ID: KeeperCode.BADARGUMENTS,
    ErrorCode.INVALID_PARTITIONS: KeeperCode.BADARGUMENTS,
    ErrorCode.INVALID_REPLICATION_FACTOR: KeeperCode.BADARGUMENTS,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: KeeperCode.BADARGUMENTS,
    ErrorCode.INVALID_CONFIG: KeeperCode.BADARGUMENTS,
    ErrorCode.INVALID_REQUEST: KeeperCode.BADARGUMENTS,
    ErrorCode.REQUEST_TIMED_OUT: KeeperCode.OPERATIONTIMEOUT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: KeeperCode.OPERATIONTIMEOUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: KeeperCode.OPERATIONTIMEOUT,
    ErrorCode.NOT_COORDINATOR: KeeperCode.OPERATIONTIMEOUT,
}
"""ZooKeeper's errors for Kafka's; SYSTEMERROR for all others."""


class KeeperClient(Protocol):
    """A connection of a client."""

    @property
    def address(self) -> ClientAddress:
        """The two ends of the connection."""

    def notify(self, event: EventType, path: str) -> None:
        """Send a watch event, before any reply that is computed later."""

    def disconnect(self) -> None:
        """Close the connection soon, after the replies that are due."""


class Reply(NamedTuple):
    """A reply to a frame, without its length; the connection ends after the last one."""

    frame: bytes
    is_last: bool = False


@dataclass(slots=True)
class Traffic:
    """A count of requests and of replies with events, and of the time that requests took."""

    received: int = 0
    sent: int = 0
    min_ms: int = 0
    max_ms: int = 0
    total_ms: int = 0

    def answered(self, took_ms: int) -> None:
        """Count a request that has been answered after a time."""
        self.min_ms = min(self.min_ms, took_ms) if self.received else took_ms
        self.max_ms = max(self.max_ms, took_ms)
        self.total_ms += took_ms
        self.received += 1
        self.sent += 1


class ZooKeeperService:
    """A ZooKeeper server of one process, whose nodes are in memory except for what Kafka holds."""

    def __init__(
        self,
        cluster: KafkaCluster,
        limits: Limits,
        *,
        wall_clock_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        """Make an empty server; the clocks return milliseconds since 1970 and of a clock that never goes back."""
        self.limits = limits
        self._cluster = cluster
        self._monotonic_ms = monotonic_ms
        started_ms = wall_clock_ms()
        # Clients compare transaction ids before and after a restart of the server: the ids must grow.
        self.tree = DataTree(limits, wall_clock_ms, first_zxid=started_ms // 1000 << ZXID_EPOCH_BITS)
        self.sessions = Sessions(limits)
        self.traffic = Traffic()
        self._nodes = BrokerNodes(self.tree, cluster, started_ms)
        self._offsets = ConsumerOffsets(self.tree, cluster)
        self._topics = TopicChanges(self.tree, cluster)

    def refresh(self) -> None:
        """Show changes of the cluster's metadata, so that watches fire."""
        self._nodes.refresh()

    # --- sessions

    def connect(self, frame: bytes, client: KeeperClient) -> tuple[Reply, Session | None]:
        """Answer the first frame of a connection with a new session, or with the one that moves here.

        A session that is unknown, or whose password is wrong, is answered as expired. Raises JuteError, and KeeperError
        SYSTEMERROR if there are too many sessions.
        """
        request, now_ms = decode_connect(frame), self._monotonic_ms()
        if request.session_id == 0:
            session = self.sessions.open(request.timeout_ms, now_ms)
            if session is None:
                raise KeeperError(KeeperCode.SYSTEMERROR, "gregor.zookeeper.max.sessions is reached")
        else:
            session = self.sessions.reopen(request.session_id, request.password, request.timeout_ms, now_ms)
        if session is None:
            refusal = encode_connect_reply(0, 0, NO_PASSWORD, with_read_only=request.has_read_only)
            return Reply(refusal, is_last=True), None
        if session.client is not None:
            session.client.disconnect()
        session.client = client
        accepted = encode_connect_reply(
            session.timeout_ms, session.id, session.password, with_read_only=request.has_read_only
        )
        return Reply(accepted), session

    def disconnected(self, session: Session | None, client: KeeperClient) -> None:
        """Remove the watches of a connection that has ended; its session goes on until its timeout."""
        self.tree.watches.remove(client)
        if session is not None and session.client is client:
            session.client = None

    def expire_sessions(self) -> None:
        """End the sessions whose timeout has passed."""
        for session in self.sessions.take_expired(self._monotonic_ms()):
            logger.info("ZooKeeper session 0x%x has expired after %d ms", session.id, session.timeout_ms)
            self.tree.delete_ephemerals(session.id)
            if session.client is not None:
                session.client.disconnect()

    # --- requests

    async def answer(self, frame: bytes, session: Session, client: KeeperClient) -> Reply | None:
        """Answer a request of a session; None if the session has ended or moved to another connection.

        Raises JuteError for malformed bytes.
        """
        if session.client is not client or not self.sessions.is_open(session):
            return None
        began_ms = self._monotonic_ms()
        self.sessions.touch(session, began_ms)
        xid, request = decode_request(frame)
        session.is_busy = True
        try:
            code, body = KeeperCode.OK, await self._perform(request, session, client)
        except KeeperError as error:
            code, body = error.code, b""
            if error.text:
                logger.info("%s from %s:%d: %s", _name(request), *client.address.peer, error)
        except BrokerError as error:
            code, body = REFUSALS.get(error.code, KeeperCode.SYSTEMERROR), b""
            logger.info("%s from %s:%d: Kafka refuses: %s", _name(request), *client.address.peer, error)
        finally:
            session.is_busy = False
        self.traffic.answered(self._monotonic_ms() - began_ms)
        return Reply(encode_reply(xid, self.tree.zxid, code, body), is_last=isinstance(request, CloseSession))

    async def _perform(self, request: Request | None, session: Session, client: KeeperClient) -> bytes:
        """Carry out a request; return the body of its reply. Raises KeeperError, BrokerError."""
        self._nodes.refresh()
        match request:
            case Ping() | Auth():
                return b""
            case CloseSession():
                self.sessions.close(session)
                self.tree.delete_ephemerals(session.id)
                return b""
            case SetWatches():
                self._set_watches(request, client)
                return b""
            case Multi():
                return self._multi(request, session)
            case None:
                raise KeeperError(KeeperCode.UNIMPLEMENTED, "a type of request that is not served")
        # The number of a sequential node may be its whole name.
        check_path(f"{request.path}1" if isinstance(request, Create) and request.flags & 2 else request.path)
        place = offsets_place(request.path)
        if place is not None and (place.group is not None or isinstance(request, GetChildren)):
            await self._offsets.refresh(place, client.address)
        match request:
            case Create() | Delete() | SetData():
                return await self._write(request, place, session, client.address)
            case SetAcl():
                if self.tree.get(request.path).origin is not Origin.CLIENT:
                    raise KeeperError(KeeperCode.NOAUTH)
                return encode_stat(self.tree.set_acl(request.path, request.acl, request.version).stat)
        return self._read(request, client)

    # --- reads

    def _read(self, request: Exists | GetData | GetAcl | GetChildren | Sync, client: KeeperClient) -> bytes:
        path, watches = request.path, self.tree.watches
        if isinstance(request, Sync):
            return encode_string(path)
        if isinstance(request, Exists) and request.watch:
            watches.watch_data(client, path)
        node = self.tree.get(path)
        data, stat = self._data(path, node, client)
        match request:
            case GetData():
                if request.watch:
                    watches.watch_data(client, path)
                return encode_buffer(data) + encode_stat(stat)
            case GetChildren():
                if request.watch:
                    watches.watch_children(client, path)
                children = encode_children(sorted(node.children))
                return children + encode_stat(stat) if request.with_stat else children
            case GetAcl():
                return encode_acl(node.acl) + encode_stat(stat)
        return encode_stat(stat)

    def _data(self, path: str, node: Node, client: KeeperClient) -> tuple[bytes | None, Stat]:
        """Return a node's data and statistics for a client; a broker's address depends on the client."""
        data = self._nodes.data_for(path, client.address)
        if data is None:
            return node.data, node.stat
        return data, node.stat._replace(data_length=len(data))

    def _set_watches(self, request: SetWatches, client: KeeperClient) -> None:
        """Restore the watches of a client that has reconnected; tell it of what happened meanwhile."""
        tree, since = self.tree, request.relative_zxid
        for path in request.data:
            node = tree.find(path)
            if node is None:
                client.notify(EventType.NODE_DELETED, path)
            elif node.mzxid > since:
                client.notify(EventType.NODE_DATA_CHANGED, path)
            else:
                tree.watches.watch_data(client, path)
        for path in request.exist:
            if tree.find(path) is not None:
                client.notify(EventType.NODE_CREATED, path)
            else:
                tree.watches.watch_data(client, path)
        for path in request.child:
            node = tree.find(path)
            if node is None:
                client.notify(EventType.NODE_DELETED, path)
            elif node.pzxid > since:
                client.notify(EventType.NODE_CHILDREN_CHANGED, path)
            else:
                tree.watches.watch_children(client, path)

    # --- writes

    async def _write(
        self, request: Create | Delete | SetData, place: OffsetsPlace | None, session: Session, client: ClientAddress
    ) -> bytes:
        path = request.path
        is_offset = place is not None and place.leaf is not None
        match request:
            case Create() if self._topics.is_creation(path):
                return await self._create_topic(request, client)
            case Create() if is_offset and place is not None:
                if _mode(request) is not CreateMode.PERSISTENT:
                    raise KeeperError(KeeperCode.BADARGUMENTS, "an offset's node must be persistent")
                self.tree.new_path(path, CreateMode.PERSISTENT)
                await self._offsets.commit(place, request.data, client)
                self.tree.put(path, request.data, Origin.OFFSETS)
                return _created(request, path, self.tree.get(path).stat)
            case SetData() if is_offset and place is not None:
                self.tree.get_at(path, request.version)
                await self._offsets.commit(place, request.data, client)
                if self.tree.find(path) is None:
                    self.tree.put(path, request.data, Origin.OFFSETS)
                return encode_stat(self.tree.set_data(path, request.data).stat)
            case SetData() if self._topics.is_change(path):
                self.tree.get_at(path, request.version)
                await self._topics.change(path, request.data, client)
                self._nodes.refresh()
                return encode_stat(self.tree.get(path).stat)
            case Delete() if is_offset and place is not None:
                self.tree.get_at(path, request.version)
                await self._offsets.forget(place, client)
                if self.tree.find(path) is not None:
                    self.tree.delete(path)
                return b""
        return self._write_in_memory(request, session)[1]

    async def _create_topic(self, request: Create, client: ClientAddress) -> bytes:
        """Create or delete the topic that a new node stands for; the node itself shows the cluster's metadata."""
        self.tree.new_path(request.path, CreateMode.PERSISTENT)
        await self._topics.create(request.path, request.data, client)
        self._nodes.refresh()
        node = self.tree.find(request.path)
        return _created(request, request.path, node.stat if node else CONSUMED)

    def _write_in_memory(self, request: Create | Delete | SetData | Check, session: Session) -> tuple[OpCode, bytes]:
        """Carry out a write that does not concern Kafka; return its type and body. Raises KeeperError."""
        tree, path = self.tree, request.path
        match request:
            case Create():
                mode = _mode(request)
                names = names_in(path)
                is_config = names[:2] == ("config", "topics") and mode is not CreateMode.PERSISTENT
                if (names[:1] and names[0] in KAFKAS_OWN) or is_config:
                    raise KeeperError(KeeperCode.NOAUTH)
                path, node = tree.create(path, request.data, request.acl, mode=mode, session_id=session.id)
                return OpCode.CREATE2 if request.with_stat else OpCode.CREATE, _created(request, path, node.stat)
            case Check():
                tree.get_at(path, request.version)
                return OpCode.CHECK, b""
        if tree.get(path).origin is Origin.METADATA:
            raise KeeperError(KeeperCode.NOAUTH)
        if isinstance(request, Delete):
            tree.delete(path, request.version)
            return OpCode.DELETE, b""
        return OpCode.SET_DATA, encode_stat(tree.set_data(path, request.data, request.version).stat)

    def _multi(self, request: Multi, session: Session) -> bytes:
        """Carry out all writes or none. A write that Kafka would have to carry out is refused, and so all are."""
        results: list[MultiResult] = []
        try:
            with self.tree.transaction():
                for write in request.writes:
                    self._check_in_memory(write)
                    results.append(MultiResult(*self._write_in_memory(write, session)))
        except KeeperError as error:
            done, count = len(results), len(request.writes)
            codes = [KeeperCode.OK] * done + [error.code] + [KeeperCode.RUNTIMEINCONSISTENCY] * (count - done - 1)
            results = [MultiResult(None, b"", code) for code in codes]
        return encode_multi(results)

    def _check_in_memory(self, write: Create | Delete | SetData | Check) -> None:
        check_path(f"{write.path}1" if isinstance(write, Create) and write.flags & 2 else write.path)
        place = offsets_place(write.path)
        is_offset = place is not None and place.leaf is not None
        is_topic = isinstance(write, Create) and self._topics.is_creation(write.path)
        if is_offset or is_topic:
            raise KeeperError(KeeperCode.UNIMPLEMENTED, "offsets and topics do not change in a multi request")


def _mode(request: Create) -> CreateMode:
    """Return the mode of a new node. Raises KeeperError UNIMPLEMENTED for the modes of later versions."""
    try:
        return CreateMode(request.flags)
    except ValueError:
        raise KeeperError(KeeperCode.UNIMPLEMENTED, f"create mode {request.flags}") from None


def _created(request: Create, path: str, stat: Stat) -> bytes:
    return encode_string(path) + encode_stat(stat) if request.with_stat else encode_string(path)


def _name(request: Request | None) -> str:
    return "a request" if request is None else type(request).__name__
