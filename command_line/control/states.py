"""Named states of a broker: snapshots of its log directory in a temporary directory of this process."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

from ...broker.app.lifetime import BrokerLifetime
from ..ephemeral import ephemeral_directory
from ..snapshots import load_snapshot, save_snapshot
from .refusals import NotFoundError, RefusedError

NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


class States:
    """A set of at most `max_count` snapshots, which end with the process."""

    def __init__(self, log_dirs: tuple[str, ...], max_count: int) -> None:
        self._log_dirs = log_dirs
        self._max_count = max_count
        self._at_end = ExitStack()
        self._folder: Path | None = None

    def close(self) -> None:
        """Remove all snapshots."""
        self._at_end.close()
        self._folder = None

    def sizes(self) -> dict[str, int]:
        """Return the size of each snapshot in bytes, by name."""
        return (
            {}
            if self._folder is None
            else {path.name.removesuffix(".tar"): path.stat().st_size for path in self._folder.glob("*.tar")}
        )

    async def save(self, lifetime: BrokerLifetime, name: str) -> int:
        """Save the broker's state and return the snapshot's size in bytes; a state of the same name is replaced.

        Raises RefusedError, RestartRefusedError, SnapshotError, OSError.
        """
        directory, file = self._log_dir(), self._file(name)
        if not file.exists() and len(self.sizes()) >= self._max_count:
            raise RefusedError(f"there are {self._max_count} states (gregor.control.max.states): delete one")

        def change() -> None:
            save_snapshot(directory, file)

        await lifetime.restart(change)
        return file.stat().st_size

    async def load(self, lifetime: BrokerLifetime, name: str) -> None:
        """Replace the broker's state. Raises NotFoundError, RestartRefusedError, SnapshotError, OSError."""
        directory, file = self._log_dir(), self.path(name)
        await lifetime.restart(lambda: load_snapshot(file, directory))

    def delete(self, name: str) -> None:
        """Remove a snapshot. Raises NotFoundError."""
        self.path(name).unlink()

    def path(self, name: str) -> Path:
        """Return the file of a snapshot. Raises NotFoundError, RefusedError for what is no name."""
        file = self._file(name)
        if not file.exists():
            raise NotFoundError(f"there is no state {name!r}")
        return file

    def _file(self, name: str) -> Path:
        if not NAME.fullmatch(name):
            raise RefusedError("a state's name has 1 to 100 letters, digits, dots, dashes and underscores")
        if self._folder is None:
            self._folder = self._at_end.enter_context(ephemeral_directory())
        return self._folder / f"{name}.tar"

    def _log_dir(self) -> Path:
        if len(self._log_dirs) != 1:
            raise RefusedError("states need a broker with one log directory (log.dirs)")
        return Path(self._log_dirs[0])
