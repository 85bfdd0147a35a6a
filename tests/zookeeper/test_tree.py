"""The tree of nodes against a model, and its rules one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gregor.zookeeper.keeper_errors import KeeperCode, KeeperError
from gregor.zookeeper.limits import NODE_BYTES, WATCH_BYTES, Limits
from gregor.zookeeper.messages import OPEN_ACL, Acl, CreateMode, EventType
from gregor.zookeeper.paths import ROOT, check_path, name_of, parent_of
from gregor.zookeeper.tree import DataTree, Origin

NAMES = ("a", "b", "c")
PATHS = ("/a", "/b", "/a/a", "/a/b", "/a/b/a", "/a/b/c", "/b/c", "/nowhere/a")
DATA = st.one_of(st.none(), st.binary(max_size=4))
VERSIONS = st.sampled_from([-1, -1, -1, 0, 1, 5])
SESSIONS = st.sampled_from([11, 12])
T = TypeVar("T")


class Recorder:
    """A watcher that records its events."""

    def __init__(self) -> None:
        self.told: list[tuple[EventType, str]] = []

    def notify(self, event: EventType, path: str) -> None:
        self.told.append((event, path))


@dataclass
class ModelNode:
    data: bytes | None
    owner: int = 0
    version: int = 0
    created: int = 0
    changes: int = 0
    children: set[str] = field(default_factory=set)


def attempt(change: Callable[[], T]) -> T | KeeperCode:
    """Return the result of a change, or the code with which it is refused."""
    try:
        return change()
    except KeeperError as error:
        return error.code


def new_tree(limits: Limits | None = None, first_zxid: int = 0) -> DataTree:
    return DataTree(limits or Limits(), lambda: 1000, first_zxid)


class TreeAgainstModel(RuleBasedStateMachine):
    """A machine that compares all operations in any order with a dictionary of nodes."""

    @initialize()
    def begin(self) -> None:
        self.tree = new_tree()
        self.nodes = {ROOT: ModelNode(b"")}
        self.watcher = Recorder()
        self.expected: list[tuple[EventType, str]] = []
        self.on_data: set[str] = set()
        self.on_children: set[str] = set()
        self.last_zxid = 0

    def fire(self, event: EventType, path: str) -> None:
        is_deletion = event is EventType.NODE_DELETED
        if path in self.on_data or (is_deletion and path in self.on_children):
            self.expected.append((event, path))
        self.on_data.discard(path)
        if is_deletion:
            self.on_children.discard(path)
        parent = parent_of(path)
        if event is not EventType.NODE_DATA_CHANGED and parent in self.on_children:
            self.on_children.discard(parent)
            self.expected.append((EventType.NODE_CHILDREN_CHANGED, parent))

    def refusal_of_creation(self, path: str) -> KeeperCode | None:
        parent = self.nodes.get(parent_of(path))
        if parent is None:
            return KeeperCode.NONODE
        if path in self.nodes:
            return KeeperCode.NODEEXISTS
        return KeeperCode.NOCHILDRENFOREPHEMERALS if parent.owner else None

    def add(self, path: str, data: bytes | None, owner: int) -> None:
        self.nodes[path] = ModelNode(data, owner)
        parent = self.nodes[parent_of(path)]
        parent.children.add(name_of(path))
        parent.created += 1
        parent.changes += 1
        self.fire(EventType.NODE_CREATED, path)

    def remove(self, path: str) -> None:
        del self.nodes[path]
        parent = self.nodes[parent_of(path)]
        parent.children.discard(name_of(path))
        parent.changes += 1
        self.fire(EventType.NODE_DELETED, path)

    @rule(path=st.sampled_from(PATHS), data=DATA, mode=st.sampled_from(CreateMode), session=SESSIONS)
    def create(self, path: str, data: bytes | None, mode: CreateMode, session: int) -> None:
        parent = self.nodes.get(parent_of(path))
        expected = f"{path}{parent.created:010d}" if mode.is_sequential and parent is not None else path
        refusal = self.refusal_of_creation(expected)
        outcome = attempt(lambda: self.tree.create(path, data, mode=mode, session_id=session))
        if isinstance(outcome, KeeperCode):
            assert outcome is refusal
            return
        assert refusal is None
        made, node = outcome
        assert made == expected
        assert node.czxid == node.mzxid == node.pzxid == self.tree.zxid
        self.add(made, data, session if mode.is_ephemeral else 0)

    @rule(path=st.sampled_from(PATHS), version=VERSIONS)
    def delete(self, path: str, version: int) -> None:
        node = self.nodes.get(path)
        refusal = None
        if node is None:
            refusal = KeeperCode.NONODE
        elif version not in (-1, node.version):
            refusal = KeeperCode.BADVERSION
        elif node.children:
            refusal = KeeperCode.NOTEMPTY
        assert attempt(lambda: self.tree.delete(path, version)) is refusal
        if refusal is None:
            self.remove(path)

    @rule(path=st.sampled_from(PATHS), data=DATA, version=VERSIONS)
    def set_data(self, path: str, data: bytes | None, version: int) -> None:
        node = self.nodes.get(path)
        outcome = attempt(lambda: self.tree.set_data(path, data, version))
        if node is None or version not in (-1, node.version):
            assert outcome is (KeeperCode.NONODE if node is None else KeeperCode.BADVERSION)
            return
        node.data, node.version = data, node.version + 1
        assert self.tree.get(path).mzxid == self.tree.zxid
        self.fire(EventType.NODE_DATA_CHANGED, path)

    @rule(session=SESSIONS)
    def end_session(self, session: int) -> None:
        doomed = sorted(path for path, node in self.nodes.items() if node.owner == session)
        assert self.tree.ephemerals_of(session) == doomed
        self.tree.delete_ephemerals(session)
        for path in doomed:
            self.remove(path)

    @rule(path=st.sampled_from((ROOT, *PATHS)), on_children=st.booleans())
    def watch(self, path: str, on_children: bool) -> None:
        if on_children:
            self.tree.watches.watch_children(self.watcher, path)
            self.on_children.add(path)
        else:
            self.tree.watches.watch_data(self.watcher, path)
            self.on_data.add(path)

    @rule()
    def reconnect(self) -> None:
        self.tree.watches.remove(self.watcher)
        self.on_data.clear()
        self.on_children.clear()

    @rule(path=st.sampled_from(PATHS), data=DATA)
    def fail_in_a_transaction(self, path: str, data: bytes | None) -> None:
        def change_everything() -> None:
            with self.tree.transaction():
                self.tree.create("/transient", data)
                self.tree.set_data("/transient", b"changed")
                for node in self.nodes:
                    self.tree.set_data(node, b"lost")
                    self.tree.set_acl(node, (Acl(1, "world", "anyone"),))
                if path in self.nodes and not self.nodes[path].children:
                    self.tree.delete(path)
                self.tree.get("/missing")

        zxid = self.tree.zxid
        assert attempt(change_everything) is KeeperCode.NONODE
        assert self.tree.zxid == zxid

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "tree"):
            return
        assert len(self.tree) == len(self.nodes)
        for path, node in self.nodes.items():
            found = self.tree.get(path)
            assert (found.data, found.ephemeral_owner, found.version) == (node.data, node.owner, node.version)
            assert (found.stat.cversion, found.stat.num_children) == (node.changes, len(node.children))
            assert found.stat.data_length == len(node.data or b"")
            assert found.children == node.children
            assert found.acl == OPEN_ACL
            assert max(found.czxid, found.mzxid, found.pzxid) <= self.tree.zxid
        assert self.watcher.told == self.expected
        assert len(self.tree.watches) == len(self.on_data) + len(self.on_children)
        assert self.tree.zxid >= self.last_zxid
        self.last_zxid = self.tree.zxid

    @invariant()
    def the_budget_is_the_sum(self) -> None:
        if not hasattr(self, "tree"):
            return
        own = {path: node for path, node in self.nodes.items() if path != ROOT}
        nodes = sum(len(path) + len(node.data or b"") + NODE_BYTES for path, node in own.items())
        watches = sum(len(path) + WATCH_BYTES for path in [*self.on_data, *self.on_children])
        assert self.tree.budget.node_count == len(own)
        assert self.tree.budget.used_bytes == nodes + watches


TestTreeAgainstModel = TreeAgainstModel.TestCase
TestTreeAgainstModel.settings = settings(max_examples=60, stateful_step_count=40)


def test_a_transaction_has_one_zxid_and_fires_watches_at_its_end() -> None:
    tree, watcher = new_tree(first_zxid=50), Recorder()
    tree.watches.watch_data(watcher, "/a")
    with tree.transaction():
        tree.create("/a", b"1")
        tree.create("/a/b", b"2")
        tree.set_data("/a", b"3")
        assert watcher.told == []
    assert tree.zxid == 51
    assert tree.get("/a").mzxid == tree.get("/a/b").czxid == 51
    assert watcher.told == [(EventType.NODE_CREATED, "/a")]


def test_a_transaction_without_changes_takes_no_zxid() -> None:
    tree = new_tree(first_zxid=50)
    with tree.transaction():
        tree.put("/", b"", Origin.METADATA)
    assert tree.zxid == 50


def test_names_of_sequential_nodes_go_on_after_deletions() -> None:
    tree = new_tree()
    assert tree.create("/n-", None, mode=CreateMode.PERSISTENT_SEQUENTIAL)[0] == "/n-0000000000"
    tree.delete("/n-0000000000")
    tree.create("/other", None)
    assert tree.create("/n-", None, mode=CreateMode.EPHEMERAL_SEQUENTIAL, session_id=1)[0] == "/n-0000000002"


def test_a_deletion_fires_one_event_for_data_and_child_watches_of_one_watcher() -> None:
    tree, watcher = new_tree(), Recorder()
    tree.create("/a", None)
    tree.watches.watch_data(watcher, "/a")
    tree.watches.watch_children(watcher, "/a")
    tree.delete("/a")
    assert watcher.told == [(EventType.NODE_DELETED, "/a")]


def test_a_whole_branch_is_deleted_from_its_leaves() -> None:
    tree, watcher = new_tree(), Recorder()
    tree.put("/a/b/c/d", b"1", Origin.OFFSETS)
    tree.create("/a/b/own", b"2")
    tree.watches.watch_data(watcher, "/a")
    tree.delete_below("/a")
    assert len(tree) == 1
    assert tree.budget.used_bytes == 0
    assert watcher.told == [(EventType.NODE_DELETED, "/a")]


def test_nodes_of_the_server_are_not_in_the_budget_and_replace_nodes_of_clients() -> None:
    tree = new_tree(Limits(max_nodes=1))
    tree.create("/a", b"1")
    for path in ("/b", "/c/d"):
        tree.put(path, b"2", Origin.METADATA)
    with pytest.raises(KeeperError, match=r"max.nodes"):
        tree.create("/e", None)
    tree.put("/a", b"3", Origin.METADATA)
    assert tree.get("/a").data == b"3"
    assert tree.budget.used_bytes == 0
    tree.create("/e", None)


def test_memory_is_limited_for_nodes_data_and_watches() -> None:
    tree = new_tree(Limits(max_bytes=2 * NODE_BYTES))
    tree.create("/a", None)
    tree.set_data("/a", b"x" * 300)
    before = tree.budget.used_bytes
    with pytest.raises(KeeperError, match=r"max.bytes"):
        tree.set_data("/a", b"x" * 1000)
    with pytest.raises(KeeperError, match=r"max.bytes"):
        tree.create("/b", b"x" * 400)
    with pytest.raises(KeeperError, match=r"max.bytes"):
        tree.watches.watch_data(Recorder(), "/" + "x" * 600)
    assert tree.budget.used_bytes == before
    tree.delete("/a")
    assert tree.budget.used_bytes == 0


def test_watches_are_limited_for_each_connection() -> None:
    tree = new_tree(Limits(max_watches_per_session=2))
    first, second = Recorder(), Recorder()
    for watcher in (first, second):
        tree.watches.watch_data(watcher, "/a")
        tree.watches.watch_data(watcher, "/a")
        tree.watches.watch_children(watcher, "/a")
    with pytest.raises(KeeperError, match=r"max.watches.per.session"):
        tree.watches.watch_data(first, "/b")
    tree.watches.remove(second)
    assert len(tree.watches) == 2


def test_an_empty_access_control_list_is_refused() -> None:
    tree = new_tree()
    tree.create("/a", None)
    with pytest.raises(KeeperError, match="INVALIDACL"):
        tree.create("/b", None, ())
    with pytest.raises(KeeperError, match="INVALIDACL"):
        tree.set_acl("/a", ())
    assert tree.set_acl("/a", OPEN_ACL, 0).aversion == 1
    with pytest.raises(KeeperError, match="BADVERSION"):
        tree.set_acl("/a", OPEN_ACL, 0)


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a\0", "/\x1f", "/\ue000", "/\uffff"])
def test_invalid_paths_are_refused(path: str) -> None:
    with pytest.raises(KeeperError, match="BADARGUMENTS"):
        check_path(path)


@pytest.mark.parametrize("path", ["/", "/a", "/a.b/..c", "/é", "/a b/\u4e2d"])
def test_valid_paths_are_accepted(path: str) -> None:
    check_path(path)
