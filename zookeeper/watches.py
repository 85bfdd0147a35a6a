"""One-shot watches of connections on the data and the children of nodes (ZooKeeper `WatchManager`)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from .keeper_errors import KeeperCode, KeeperError
from .limits import WATCH_BYTES, Budget, Limits
from .messages import EventType
from .paths import ROOT, parent_of


class Watcher(Protocol):
    """A connection that is told of events."""

    def notify(self, event: EventType, path: str) -> None:
        """Send an event, before any reply that is computed later."""


class Event(NamedTuple):
    """An event of a node, for watches on its data, its children, or both."""

    type: EventType
    path: str


class Watches:
    """A table of the watches of all connections; each watch is removed when it is told of an event."""

    def __init__(self, limits: Limits, budget: Budget) -> None:
        self._limits = limits
        self._budget = budget
        self._on_data: dict[str, dict[Watcher, None]] = {}
        self._on_children: dict[str, dict[Watcher, None]] = {}
        self._by_watcher: dict[Watcher, set[tuple[bool, str]]] = {}

    def __len__(self) -> int:
        return sum(len(watched) for watched in self._by_watcher.values())

    def watch_data(self, watcher: Watcher, path: str) -> None:
        """Watch a node's creation, data and deletion. Raises KeeperError SYSTEMERROR at a limit."""
        self._add(watcher, path, on_children=False)

    def watch_children(self, watcher: Watcher, path: str) -> None:
        """Watch a node's children and its deletion. Raises KeeperError SYSTEMERROR at a limit."""
        self._add(watcher, path, on_children=True)

    def fire(self, event: Event) -> None:
        """Tell the watchers of a node, and those of its parent's children, what happened; remove these watches."""
        told = self._take(self._on_data, event.path, on_children=False)
        if event.type is EventType.NODE_DELETED:
            told |= self._take(self._on_children, event.path, on_children=True)
        for watcher in told:
            watcher.notify(event.type, event.path)
        if event.type is not EventType.NODE_DATA_CHANGED and event.path != ROOT:
            parent = parent_of(event.path)
            for watcher in self._take(self._on_children, parent, on_children=True):
                watcher.notify(EventType.NODE_CHILDREN_CHANGED, parent)

    def remove(self, watcher: Watcher) -> None:
        """Remove all watches of a connection."""
        for on_children, path in self._by_watcher.pop(watcher, ()):
            table = self._on_children if on_children else self._on_data
            watchers = table[path]
            del watchers[watcher]
            if not watchers:
                del table[path]
            self._budget.take(-_cost(path))

    def _add(self, watcher: Watcher, path: str, *, on_children: bool) -> None:
        watched = self._by_watcher.setdefault(watcher, set())
        if (on_children, path) in watched:
            return
        if len(watched) >= self._limits.max_watches_per_session:
            raise KeeperError(KeeperCode.SYSTEMERROR, "gregor.zookeeper.max.watches.per.session is reached")
        self._budget.take(_cost(path))
        watched.add((on_children, path))
        table = self._on_children if on_children else self._on_data
        table.setdefault(path, {})[watcher] = None

    def _take(self, table: dict[str, dict[Watcher, None]], path: str, *, on_children: bool) -> dict[Watcher, None]:
        watchers = table.pop(path, {})
        for watcher in watchers:
            self._by_watcher[watcher].discard((on_children, path))
            self._budget.take(-_cost(path))
        return watchers


def _cost(path: str) -> int:
    return len(path) + WATCH_BYTES
