"""Bytecode of modules, kept in one file from one start of the program to the next.

Python looks for each module in the folders of all finders, and reads its bytecode from a file of its own, with some ten
system calls: a fifth of a start for 400 modules. One file beside the bytecode of this program keeps the bytecode
of all modules of packages. As in Python's own bytecode files, time and size of a source say whether it has changed.
"""

from __future__ import annotations

import marshal
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType
from typing import Any

from . import kept_files

COMPILED_LATER = "_cy"
"""The end of the names of modules that may be compiled later: from then on the source is not what Python finds."""
INDEX_SIZE_BYTES = 8

Identity = tuple[str, str, bool, int, int]
"""Values that must be as they were: the entry of the package's ``__path__``, the source's path, whether the
module is itself a package, the source's time of modification in ns and its size in bytes."""


class KeptLoader(SourceFileLoader):
    """A loader of a source that knows the bytecode beforehand, or else keeps it."""

    def __init__(self, modules: KeptModules, name: str, identity: Identity, bytecode: memoryview | None) -> None:
        super().__init__(name, identity[1])
        self.modules: KeptModules | None = modules
        self.identity = identity
        self.bytecode = bytecode

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the bytecode of the module. Raises ImportError, OSError, SyntaxError."""
        # Kept bytecode is for the import itself: who asks later gets what Python's own loader finds.
        modules, self.modules = self.modules, None
        bytecode, self.bytecode = self.bytecode, None
        code = None if bytecode is None else _code(bytecode)
        if code is None:
            code = super().get_code(fullname)
            if modules is not None and code is not None:
                modules.keep(fullname, self.identity, marshal.dumps(code))
        return code


class KeptModules:
    """A finder on `sys.meta_path` for modules of packages whose sources are as they were at the last start."""

    def __init__(self, content: bytes) -> None:
        self.kept: dict[str, tuple[Identity, memoryview]] = {}
        self.used: dict[str, tuple[Identity, memoryview | bytes]] = {}
        self.has_new = False
        with suppress(EOFError, ValueError, TypeError):
            all_of_it = memoryview(content)
            at = INDEX_SIZE_BYTES + int.from_bytes(all_of_it[:INDEX_SIZE_BYTES], "big")
            for name, size, *identity in marshal.loads(all_of_it[INDEX_SIZE_BYTES:at]):  # noqa: S302 (as below)
                self.kept[name] = (tuple(identity), all_of_it[at : at + size])
                at += size

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """Return the spec of a module of a package, None for any other module."""
        if path is None or name.endswith(COMPILED_LATER):
            return None
        identity, bytecode = self.kept.get(name, (None, None))
        if identity is None or bytecode is None or identity[0] not in path or identity != _identity(*identity[:3]):
            return self._found_by_python(name, path)
        self.used[name] = (identity, bytecode)
        locations = [os.path.dirname(identity[1])] if identity[2] else None
        loader = KeptLoader(self, name, identity, bytecode)
        return spec_from_file_location(name, identity[1], loader=loader, submodule_search_locations=locations)

    def _found_by_python(self, name: str, path: Sequence[str]) -> ModuleSpec | None:
        """Return the spec that Python's own finder returns, with a loader that keeps the bytecode of a source."""
        spec = PathFinder.find_spec(name, path)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            origin, is_package = spec.loader.path, spec.submodule_search_locations is not None
            folder = os.path.dirname(os.path.dirname(origin) if is_package else origin)
            if (identity := _identity(folder, origin, is_package)) is not None:
                spec.loader = KeptLoader(self, name, identity, None)
        return spec

    def keep(self, name: str, identity: Identity, bytecode: bytes) -> None:
        """Keep the bytecode of a module for the next start."""
        self.used[name] = (identity, bytecode)
        self.has_new = True

    def content(self) -> Iterator[bytes | memoryview]:
        """Yield what a file keeps: the size of an index, the index and the bytecode of the modules in its order."""
        index = marshal.dumps([(name, len(bytecode), *identity) for name, (identity, bytecode) in self.used.items()])
        yield len(index).to_bytes(INDEX_SIZE_BYTES, "big")
        yield index
        for _, bytecode in self.used.values():
            yield bytecode


def _identity(folder: str, origin: str, is_package: bool) -> Identity | None:
    try:
        found = os.stat(origin)
    except OSError:
        return None
    return (folder, origin, is_package, found.st_mtime_ns, found.st_size)


def _code(bytecode: memoryview) -> CodeType | None:
    """Return what was kept; None if it is damaged: a loss of power may leave a file of zeros, or a part of it."""
    try:
        code = marshal.loads(bytecode)  # noqa: S302 (trusted as much as the bytecode beside it)
    except (EOFError, ValueError, TypeError):
        return None
    return code if isinstance(code, CodeType) else None


@contextmanager
def kept_modules(imports: str) -> Iterator[None]:
    """Import modules of packages from one file named after these imports, which is replaced if a module has changed.

    Where it cannot be written, Python's own files of bytecode are read at each start; a damaged file is replaced.
    """
    path = kept_files.path_of(f"{imports}-modules")
    content = kept_files.read(path)
    if not content and sys.dont_write_bytecode:
        yield
        return
    modules = KeptModules(content)
    sys.meta_path.insert(0, modules)
    try:
        yield
    finally:
        sys.meta_path.remove(modules)
    if modules.has_new and path is not None and not sys.dont_write_bytecode:
        kept_files.write(path, *modules.content())
