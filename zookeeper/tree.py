"""The tree of nodes: creation, change and deletion with versions, transaction ids (zxid) and watch events.

Rules: ZooKeeper `DataTree` and `PrepRequestProcessor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

from .keeper_errors import KeeperCode, KeeperError
from .limits import Budget, Limits
from .messages import ANY_VERSION, OPEN_ACL, Acl, CreateMode, EventType, Stat
from .paths import ROOT, child_of, name_of, parent_of
from .watches import Event, Watches


class Origin(Enum):
    """An origin of a node."""

    CLIENT = auto()
    METADATA = auto()
    """The node shows the cluster's metadata."""
    OFFSETS = auto()
    """The node shows committed offsets, or leads to such a node."""


@dataclass(slots=True, eq=False)
class Node:
    """A node of the tree. `creations` counts the children ever created, from which sequential names are made."""

    data: bytes | None
    acl: tuple[Acl, ...]
    czxid: int
    ctime_ms: int
    mzxid: int
    mtime_ms: int
    pzxid: int
    origin: Origin = Origin.CLIENT
    ephemeral_owner: int = 0
    version: int = 0
    aversion: int = 0
    creations: int = 0
    children: set[str] = field(default_factory=set)

    @property
    def stat(self) -> Stat:
        """The statistics of the node."""
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime_ms=self.ctime_ms,
            mtime_ms=self.mtime_ms,
            version=self.version,
            # The number of changes, of which deletions are not counted by themselves (ZooKeeper `DataNode.copyStat`).
            cversion=2 * self.creations - len(self.children),
            aversion=self.aversion,
            ephemeral_owner=self.ephemeral_owner,
            data_length=len(self.data or b""),
            num_children=len(self.children),
            pzxid=self.pzxid,
        )


class DataTree:
    """A tree of nodes, from which each change gets a zxid, greater than all before, and after which watches fire.

    Methods that change the tree raise KeeperError and then leave it as it was.
    """

    def __init__(self, limits: Limits, clock_ms: Callable[[], int], first_zxid: int = 0) -> None:
        """Make a tree with only the root; `clock_ms` returns the time in milliseconds since 1970."""
        self._clock_ms = clock_ms
        self.budget = Budget(limits)
        self.watches = Watches(limits, self.budget)
        self.zxid = first_zxid
        """The id of the latest change."""
        self._nodes: dict[str, Node] = {ROOT: Node(b"", OPEN_ACL, 0, 0, 0, 0, 0, origin=Origin.METADATA)}
        self._ephemerals: dict[int, set[str]] = {}
        self._undo: list[Callable[[], None]] | None = None
        self._events: list[Event] = []

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def ephemeral_count(self) -> int:
        """The number of nodes that belong to a session."""
        return sum(map(len, self._ephemerals.values()))

    # --- reads

    def find(self, path: str) -> Node | None:
        """Return a node, None if there is none."""
        return self._nodes.get(path)

    def get(self, path: str) -> Node:
        """Return a node. Raises KeeperError NONODE."""
        node = self._nodes.get(path)
        if node is None:
            raise KeeperError(KeeperCode.NONODE)
        return node

    def get_at(self, path: str, version: int) -> Node:
        """Return a node of this version, or of any for -1. Raises KeeperError NONODE, BADVERSION."""
        node = self.get(path)
        if version not in (ANY_VERSION, node.version):
            raise KeeperError(KeeperCode.BADVERSION)
        return node

    def ephemerals_of(self, session_id: int) -> list[str]:
        """Return the paths of a session's ephemeral nodes, in order."""
        return sorted(self._ephemerals.get(session_id, ()))

    # --- changes

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the changes inside one: with one zxid, undone together at an error, and with events at the end only.

        A transaction inside another is a part of it; one without changes takes no zxid.
        """
        if self._undo is not None:
            yield
            return
        self._undo, self._events = [], []
        self.zxid += 1
        try:
            yield
        except BaseException:
            for undo in reversed(self._undo):
                undo()
            self.zxid -= 1
            raise
        else:
            if not self._undo:
                self.zxid -= 1
            for event in self._events:
                self.watches.fire(event)
        finally:
            self._undo = None

    def new_path(self, path: str, mode: CreateMode) -> str:
        """Return the path that a new node would get. Raises KeeperError if it could not be created."""
        parent = self.get(parent_of(path))
        if mode.is_sequential:
            path = f"{path}{parent.creations:010d}"
        if path in self._nodes:
            raise KeeperError(KeeperCode.NODEEXISTS)
        if parent.ephemeral_owner:
            raise KeeperError(KeeperCode.NOCHILDRENFOREPHEMERALS)
        return path

    def create(
        self,
        path: str,
        data: bytes | None,
        acl: tuple[Acl, ...] = OPEN_ACL,
        *,
        mode: CreateMode = CreateMode.PERSISTENT,
        session_id: int = 0,
        origin: Origin = Origin.CLIENT,
    ) -> tuple[str, Node]:
        """Create a node, an ephemeral one for the session; return its path and the node.

        Raises KeeperError NONODE, NODEEXISTS, NOCHILDRENFOREPHEMERALS, INVALIDACL, SYSTEMERROR at a limit.
        """
        if not acl:
            raise KeeperError(KeeperCode.INVALIDACL)
        with self.transaction():
            path = self.new_path(path, mode)
            if origin is Origin.CLIENT:
                self.budget.take_node(len(path) + len(data or b""))
            owner = session_id if mode.is_ephemeral else 0
            now_ms = self._clock_ms()
            node = Node(data, acl, self.zxid, now_ms, self.zxid, now_ms, self.zxid, origin, owner)
            parent = self._nodes[parent_of(path)]
            before = parent.creations, parent.pzxid
            parent.creations += 1
            parent.pzxid = self.zxid
            self._link(path, node)

            def undo() -> None:
                self._unlink(path, node)
                parent.creations, parent.pzxid = before
                if origin is Origin.CLIENT:
                    self.budget.give_node(len(path) + len(data or b""))

            self._changed(Event(EventType.NODE_CREATED, path), undo)
        return path, node

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node without children. Raises KeeperError NONODE, BADVERSION, NOTEMPTY."""
        with self.transaction():
            node = self.get_at(path, version)
            if node.children:
                raise KeeperError(KeeperCode.NOTEMPTY)
            size_bytes = len(path) + len(node.data or b"")
            parent = self._nodes[parent_of(path)]
            before = parent.pzxid
            parent.pzxid = self.zxid
            self._unlink(path, node)
            if node.origin is Origin.CLIENT:
                self.budget.give_node(size_bytes)

            def undo() -> None:
                self._link(path, node)
                parent.pzxid = before
                if node.origin is Origin.CLIENT:
                    self.budget.take_node(size_bytes)

            self._changed(Event(EventType.NODE_DELETED, path), undo)

    def set_data(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Node:
        """Replace a node's data; return the node. Raises KeeperError NONODE, BADVERSION, SYSTEMERROR at a limit."""
        with self.transaction():
            node = self.get_at(path, version)
            growth_bytes = len(data or b"") - len(node.data or b"") if node.origin is Origin.CLIENT else 0
            self.budget.take(growth_bytes)
            before = node.data, node.mzxid, node.mtime_ms, node.version
            node.data, node.mzxid, node.mtime_ms = data, self.zxid, self._clock_ms()
            node.version += 1

            def undo() -> None:
                node.data, node.mzxid, node.mtime_ms, node.version = before
                self.budget.take(-growth_bytes)

            self._changed(Event(EventType.NODE_DATA_CHANGED, path), undo)
        return node

    def set_acl(self, path: str, acl: tuple[Acl, ...], aversion: int = ANY_VERSION) -> Node:
        """Replace a node's access control list; return the node. Raises KeeperError NONODE, BADVERSION, INVALIDACL."""
        if not acl:
            raise KeeperError(KeeperCode.INVALIDACL)
        with self.transaction():
            node = self.get(path)
            if aversion not in (ANY_VERSION, node.aversion):
                raise KeeperError(KeeperCode.BADVERSION)
            before = node.acl, node.aversion
            node.acl = acl
            node.aversion += 1

            def undo() -> None:
                node.acl, node.aversion = before

            self._changed(None, undo)
        return node

    def take_over(self, path: str, origin: Origin) -> None:
        """Give a client's node another origin; it no longer counts as a client's."""
        node = self.get(path)
        if node.origin is Origin.CLIENT and origin is not Origin.CLIENT:
            self.budget.give_node(len(path) + len(node.data or b""))
            node.origin = origin

    def delete_ephemerals(self, session_id: int) -> None:
        """Delete the ephemeral nodes of a session that has ended, in one transaction."""
        paths = self.ephemerals_of(session_id)
        if not paths:
            return
        with self.transaction():
            for path in paths:
                self.delete(path)

    def _link(self, path: str, node: Node) -> None:
        self._nodes[path] = node
        self._nodes[parent_of(path)].children.add(name_of(path))
        if node.ephemeral_owner:
            self._ephemerals.setdefault(node.ephemeral_owner, set()).add(path)

    def _unlink(self, path: str, node: Node) -> None:
        del self._nodes[path]
        self._nodes[parent_of(path)].children.discard(name_of(path))
        if node.ephemeral_owner:
            owned = self._ephemerals[node.ephemeral_owner]
            owned.discard(path)
            if not owned:
                del self._ephemerals[node.ephemeral_owner]

    def _changed(self, event: Event | None, undo: Callable[[], None]) -> None:
        assert self._undo is not None
        self._undo.append(undo)
        if event is not None:
            self._events.append(event)

    # --- nodes of the server

    def put(self, path: str, data: bytes | None, origin: Origin) -> None:
        """Create or change a node of the server's, with its missing ancestors; nothing happens if it has the data."""
        node = self._nodes.get(path)
        if node is not None:
            self.take_over(path, origin)
            if node.data != data:
                self.set_data(path, data)
            return
        with self.transaction():
            parent = parent_of(path)
            if parent not in self._nodes:
                self.put(parent, None, origin)
            self.create(path, data, origin=origin)

    def delete_below(self, path: str) -> None:
        """Delete a node and all nodes below it, if it exists."""
        pending = [path] if path in self._nodes else []
        doomed = []
        while pending:
            doomed.append(pending.pop())
            pending += [child_of(doomed[-1], name) for name in self._nodes[doomed[-1]].children]
        if doomed:
            with self.transaction():
                for each in reversed(doomed):
                    self.delete(each)
