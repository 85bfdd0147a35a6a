"""The newest record format that consumers of each Fetch version read, and whether these consumers read zstd."""

from __future__ import annotations

from ...protocol.records import v0, v1, v2

LAST_VERSION_OF_V0 = 1
LAST_VERSION_OF_V1 = 3
"""The last Fetch versions whose clients read record formats v0 and v1 at most."""
FIRST_VERSION_WITH_ZSTD = 10
"""The first Fetch version whose clients read zstd (KIP-110)."""


def newest_readable_magic(version: int) -> int:
    """Return the newest record format (magic) that clients of this Fetch version read."""
    if version <= LAST_VERSION_OF_V0:
        return v0.MAGIC
    return v1.MAGIC if version <= LAST_VERSION_OF_V1 else v2.MAGIC
