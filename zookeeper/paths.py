"""Paths of nodes: their rules (ZooKeeper `PathUtils.validatePath`), parents and names."""

from __future__ import annotations

import re

from .keeper_errors import KeeperCode, KeeperError

ROOT = "/"
# Control characters, surrogates and private characters, and specials: the ranges of `PathUtils`.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def check_path(path: str) -> None:
    """Check a path of a request. Raises KeeperError BADARGUMENTS."""
    if path == ROOT:
        return
    if not path.startswith("/") or path.endswith("/") or _FORBIDDEN.search(path):
        raise KeeperError(KeeperCode.BADARGUMENTS, "an invalid path")
    if any(name in ("", ".", "..") for name in path[1:].split("/")):
        raise KeeperError(KeeperCode.BADARGUMENTS, "a path with an empty or relative name")


def parent_of(path: str) -> str:
    """Return the path of a node's parent; the root is its own parent."""
    return path.rpartition("/")[0] or ROOT


def name_of(path: str) -> str:
    """Return the last name of a path, empty for the root."""
    return path.rpartition("/")[2]


def child_of(parent: str, name: str) -> str:
    """Return the path of a child."""
    return f"/{name}" if parent == ROOT else f"{parent}/{name}"


def names_in(path: str) -> tuple[str, ...]:
    """Return the names on the way from the root to a node, none for the root."""
    return () if path == ROOT else tuple(path[1:].split("/"))
