"""The file with the names of the topics that a load of ``gregor.load`` has not yet filled completely."""

from __future__ import annotations

from pathlib import Path

from ..config import BrokerConfig

MARKER = "gregor-loading"
"""The file's name in the first log directory."""


def marker_of(config: BrokerConfig) -> Path:
    """Return the path of the file. The file exists while a load runs, and after an interrupted one."""
    return Path(config.log_dirs[0], MARKER)
