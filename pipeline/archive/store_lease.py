"""One writer per archive in a store, which has no locks: leases with growing numbers.

    ROOT/archive.lock/00000000000000000003.json    the third lease: holder, renewals, whether it was released

A lease is taken by creating the file of the next number, which the store allows once. Its holder renews it; a process
that wants the archive takes the next lease when the last one was released, when its holder is a process of this
machine that has ended, or when it was not renewed for LEASE_S, by the clock of the process that waits.

Time is not what protects the archive, since a holder may only have been slow. A holder confirms after each entry of the
manifest that it wrote, and before it acts on it, that its lease is still the last one. A process that takes the lease
of a holder that may still write first puts an empty entry into the manifest (`Archive.establish`). So of two writers
only one can create the next entry, and the other one learns that it lost before it changes anything else.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from ..filesystems.files import create_json, names_in, write_json
from ..filesystems.remote_path import RemotePath
from ..filesystems.stores import StoreError
from .manifest import ManifestError

RENEWAL_S = 5.0
"""The time between two renewals of a lease."""
LEASE_S = 30.0
"""The time without a renewal after which a holder is taken for dead."""
LOOK_EVERY_S = 1.0
_NAME = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True, slots=True)
class Lease:
    """The contents of a lease's file."""

    machine: str
    process: int
    process_start: str
    host: str
    renewals: int = 0
    is_released: bool = False
    is_clean: bool = False
    """Whether the holder knows that all it wrote has arrived."""


class StoreLease:
    """A context manager that holds an archive in a store, see writer_lock.ArchiveLock."""

    def __init__(self, root: RemotePath, say: Callable[[str], None]) -> None:
        self._root = root
        self._say = say
        self._folder = root / "archive.lock"
        self._lease = _own_lease()
        self._ends = threading.Event()
        self._renewer: threading.Thread | None = None
        self._write = threading.Lock()
        self.epoch = 0
        self.follows_a_crash = False

    def __enter__(self) -> Self:
        while not self._take():
            pass
        self._check_store()
        self._renewer = threading.Thread(target=self._renew, name="renewal of a lease", daemon=True)
        self._renewer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ends.set()
        with self._write:
            self._lease = replace(self._lease, is_released=True, is_clean=error is None)
            # If this fails, the next process waits for LEASE_S without need.
            with contextlib.suppress(StoreError):
                write_json(self._path(self.epoch), asdict(self._lease))

    def confirm(self) -> None:
        """Raise ManifestError if another process has taken the next lease; StoreError if nobody can tell."""
        last = max(self._epochs(), default=0)
        if last != self.epoch:
            raise ManifestError(
                f"{self._root} was taken by {self._describe(last)}, as this process did not renew its lease: nothing "
                "that this process wrote since then is in the archive"
            )

    def _take(self) -> bool:
        """Take the next lease; return False if another process was faster."""
        known = self._epochs()
        last = max(known, default=0)
        holder = self._read(last) if last else None
        if holder is not None and not holder.is_released:
            self._wait_for_end(last, holder)
            holder = self._read(last) or holder
        self.follows_a_crash = holder is not None and not (holder.is_released and holder.is_clean)
        self.epoch = last + 1
        try:
            create_json(self._path(self.epoch), asdict(self._lease))
        except FileExistsError:
            return False
        # Files of old leases are removed, so that this number may have been given before.
        if max(self._epochs()) != self.epoch:
            self._path(self.epoch).unlink(missing_ok=True)
            return False
        for epoch in known:
            self._path(epoch).unlink(missing_ok=True)
        return True

    def _wait_for_end(self, epoch: int, holder: Lease) -> None:
        """Return when the holder may be taken for dead. Raises ManifestError if it lives."""
        if holder.machine == self._lease.machine:
            if _start_of(holder.process) == holder.process_start:
                raise ManifestError(f"{self._root} is held by process {holder.process}: one writer at a time")
            return
        self._say(f"waiting up to {LEASE_S:.0f} s for {self._describe(epoch)}, which did not release {self._root}")
        deadline = time.monotonic() + LEASE_S
        while time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)
            found = self._read(epoch)
            if found is None or found.is_released:
                return
            if found.renewals != holder.renewals:
                raise ManifestError(f"{self._root} is held by {self._describe(epoch)}: one writer at a time")

    def _check_store(self) -> None:
        """Raise ManifestError if the store lets a file be created twice: then it cannot keep an archive."""
        try:
            create_json(self._path(self.epoch), {})
        except FileExistsError:
            return
        raise ManifestError(
            f"{self._root.store.uri} replaces files that it was asked to create (If-None-Match: *): an archive there "
            "would not be safe"
        )

    def _renew(self) -> None:
        while not self._ends.wait(RENEWAL_S):
            with self._write:
                if self._ends.is_set():
                    return
                self._lease = replace(self._lease, renewals=self._lease.renewals + 1)
                with contextlib.suppress(StoreError):
                    write_json(self._path(self.epoch), asdict(self._lease))

    def _epochs(self) -> list[int]:
        return [int(found[1]) for name in names_in(self._folder) if (found := _NAME.fullmatch(name))]

    def _path(self, epoch: int) -> RemotePath:
        return self._folder / f"{epoch:020d}.json"

    def _read(self, epoch: int) -> Lease | None:
        try:
            return Lease(**json.loads(self._path(epoch).read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as fault:
            raise ManifestError(f"{self._path(epoch)} is damaged: {fault}") from fault

    def _describe(self, epoch: int) -> str:
        holder = self._read(epoch)
        return "another process" if holder is None else f"process {holder.process} on {holder.host}"


def _own_lease() -> Lease:
    return Lease(_machine(), os.getpid(), _start_of(os.getpid()), socket.gethostname())


def _machine() -> str:
    """Return the name of the place where a process number means one process: a boot and a namespace of processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        # No later process finds its own name in the lease, so that it waits for LEASE_S.
        return os.urandom(16).hex()


def _start_of(process: int) -> str:
    """Return the start of a process in the kernel's ticks, which tells it from later ones; "" if there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
