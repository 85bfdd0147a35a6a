"""Encoded entries of answers, kept from one answer to the next: topics of Metadata, groups of ListGroups.

To describe and to encode an entry takes some microseconds, to find it here a quarter of one.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from ...protocol.codec import encode_struct
from ...protocol.schema import EncodedStruct, Message, Struct

MOST_BYTES = 32 << 20
"""Room for the entries of 100,000 topics, which take twenty times as much as partitions."""
ENTRY_BYTES = 250
"""The approximate size of an entry besides its encoded bytes."""


class Entry(NamedTuple):
    """An encoded entry, valid as long as what it describes has this revision."""

    revision: object
    encoded: EncodedStruct


class View:
    """The kept entries of one kind of answer, by name: the bytes of an entry depend on its name and revision alone."""

    def __init__(self, store: EncodedStructs, response: type[Message], version: int) -> None:
        self.entries: dict[str, Entry] = {}
        self.size_bytes = 0
        self._store = store
        self._response = response
        self._version = version

    def encode(self, structure: Struct, success_count: int) -> EncodedStruct:
        """Return an encoded entry; each of its ``success_count`` error codes must be NONE."""
        return EncodedStruct(encode_struct(structure, self._response, self._version), success_count)

    def keep(self, name: str, revision: object, encoded: EncodedStruct) -> None:
        """Keep an entry in place of the one with its name, unless the store is full."""
        known = self.entries.get(name)
        size_bytes = len(encoded.data) + ENTRY_BYTES
        more_bytes = size_bytes - (0 if known is None else len(known.encoded.data) + ENTRY_BYTES)
        if self._store.has_room(more_bytes, self):
            self.entries[name] = Entry(revision, encoded)
            self.size_bytes += more_bytes
        elif known is not None:
            del self.entries[name]
            self.size_bytes -= size_bytes - more_bytes


class EncodedStructs:
    """A store of the encoded entries of all answers of one broker, of `MOST_BYTES` at most."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._views: dict[Hashable, View] = {}
        """The views, the most recently used last."""

    @property
    def size_bytes(self) -> int:
        """The approximate memory of all entries."""
        return sum(view.size_bytes for view in self._views.values())

    def view(self, response: type[Message], version: int, key: Hashable = None) -> View:
        """Return the entries of a version of a response; with ``key``, of those answers that have it in common."""
        whole_key = response, version, key
        found = self._views.pop(whole_key, None) or View(self, response, version)
        self._views[whole_key] = found
        return found

    def has_room(self, more_bytes: int, view: View) -> bool:
        """Return whether that many bytes may be added to a view, after the views used least recently are dropped."""
        excess = self.size_bytes + more_bytes - self._most_bytes
        for key, other in list(self._views.items()):
            if excess <= 0:
                break
            if other is not view:
                excess -= other.size_bytes
                del self._views[key]
        return excess <= 0
