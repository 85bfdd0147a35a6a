"""`Files` in memory that loses unsynced data, tears writes and fails on demand."""

import errno
from struct import Struct

from gregor.storage.disk.files import Buffer


class Node:
    """A file's bytes, as programs see them and as a power failure would leave them."""

    def __init__(self, clock_ms: int) -> None:
        self.data = bytearray()
        self.durable = b""
        self.modified_ms = clock_ms


class MemoryTable:
    """A `MappedTable` over a node."""

    def __init__(self, node: Node, size_bytes: int) -> None:
        self._node = node
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    def unpack(self, layout: Struct, position: int) -> tuple[int, ...]:
        return layout.unpack_from(self._node.data, position)

    def pack(self, layout: Struct, position: int, *values: int | bytes) -> None:
        layout.pack_into(self._node.data, position, *values)

    def part(self, position: int, end: int) -> bytes:
        return bytes(self._node.data[position:end])

    def sync(self) -> None:
        self._node.durable = bytes(self._node.data)

    def close(self) -> None:
        pass


class MemoryFile:
    """A `StoredFile` over a node."""

    descriptor = -1

    def __init__(self, files: "ForgetfulFiles", node: Node) -> None:
        self._files = files
        self._node = node

    def write_at(self, data: Buffer, position: int, /) -> int:
        taken = self._files.allow("write", len(data))
        contents = self._node.data
        if position > len(contents):
            contents.extend(bytes(position - len(contents)))
        contents[position : position + taken] = data[:taken]
        self._node.modified_ms = self._files.now_ms
        return taken

    def read_at(self, size_bytes: int, position: int, /) -> bytes:
        self._files.allow("read", size_bytes)
        return bytes(self._node.data[position : position + size_bytes])

    def map(self, position: int, size_bytes: int) -> memoryview:
        return memoryview(bytes(self._node.data[position : position + size_bytes]))

    def map_table(self, size_bytes: int) -> MemoryTable:
        missing = size_bytes - len(self._node.data)
        if missing > 0:
            self._files.allow("allocate", missing)
            self._node.data.extend(bytes(missing))
        return MemoryTable(self._node, size_bytes)

    def size(self) -> int:
        return len(self._node.data)

    def truncate(self, size_bytes: int) -> None:
        del self._node.data[size_bytes:]
        self._node.data.extend(bytes(size_bytes - len(self._node.data)))

    def punch_hole(self, position: int, size_bytes: int) -> bool:
        self._files.allow("write", 0)
        self._node.data[position : position + size_bytes] = bytes(size_bytes)
        return True

    def sync(self) -> None:
        self._files.allow("sync", 0)
        self._node.durable = bytes(self._node.data)

    def close(self) -> None:
        pass


class ForgetfulFiles:
    """A `Files` in memory; names are durable at once, as on a journalling file system, contents after a sync."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.directories: set[str] = {"/"}
        self.now_ms = 0
        self._faults: dict[str, OSError] = {}
        self._short_write: int | None = None

    # --- faults ---

    def fail(self, operation: str, code: int = errno.EIO) -> None:
        """Let every "write", "read", "sync" or "allocate" fail until `heal`."""
        self._faults[operation] = OSError(code, f"injected into {operation}")

    def shorten_next_write(self, taken: int) -> None:
        """Let the next write take only `taken` bytes."""
        self._short_write = taken

    def heal(self) -> None:
        """Remove all injected faults."""
        self._faults.clear()
        self._short_write = None

    def allow(self, operation: str, size_bytes: int) -> int:
        """Return how many bytes of an operation are allowed; raises the injected fault."""
        if operation == "write" and self._short_write is not None:
            taken, self._short_write = min(self._short_write, size_bytes), None
            return taken
        if operation in self._faults:
            raise self._faults[operation]
        return size_bytes

    def cut_power(self, *, kept_unsynced_bytes: int = 0) -> None:
        """Discard data that was not synced, except the given number of bytes of each file that had grown."""
        for node in self.nodes.values():
            if len(node.data) > len(node.durable):
                kept = node.data[len(node.durable) : len(node.durable) + kept_unsynced_bytes]
                node.data = bytearray(node.durable + kept)
            else:
                node.data = bytearray(node.durable)

    # --- Files ---

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if path not in self.nodes:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.allow("write", 0)
            self.nodes[path] = Node(self.now_ms)
        return MemoryFile(self, self.nodes[path])

    def read(self, path: str) -> bytes:
        return self.open(path).read_at(1 << 30, 0)

    def replace(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self.allow("write", len(data))
        node = Node(self.now_ms)
        node.data = bytearray(data)
        if sync:
            self.allow("sync", 0)
            node.durable = data
        self.nodes[path] = node

    def list(self, directory: str) -> list[str]:
        prefix = directory.rstrip("/") + "/"
        paths = [*self.nodes, *self.directories]
        return sorted({path[len(prefix) :].split("/")[0] for path in paths if path.startswith(prefix)} - {""})

    def exists(self, path: str) -> bool:
        return path in self.nodes or path in self.directories

    def is_directory(self, path: str) -> bool:
        return path in self.directories

    def size(self, path: str) -> int:
        return len(self.open(path)._node.data)

    def modified_ms(self, path: str) -> int:
        return self.open(path)._node.modified_ms

    def make_directory(self, path: str) -> None:
        self.directories.add(path)

    def rename(self, source: str, target: str) -> None:
        self.nodes[target] = self.nodes.pop(source)

    def remove(self, path: str) -> None:
        self.nodes.pop(path, None)

    def remove_tree(self, directory: str) -> None:
        for path in [path for path in self.nodes if path.startswith(directory + "/")]:
            del self.nodes[path]
        self.directories.discard(directory)

    def sync_directory(self, directory: str) -> None:
        self.allow("sync", 0)


class Crashing(ForgetfulFiles):
    """A `ForgetfulFiles` that counts changes of the disk and fails at one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.steps_to_live: int | None = None

    def step(self) -> None:
        if self.steps_to_live is not None:
            if self.steps_to_live == 0:
                raise KeyboardInterrupt
            self.steps_to_live -= 1

    def allow(self, operation: str, size_bytes: int) -> int:
        if operation in ("write", "sync", "allocate"):
            self.step()
        return super().allow(operation, size_bytes)

    def rename(self, source: str, target: str) -> None:
        self.step()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.step()
        super().remove(path)
