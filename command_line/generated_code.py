"""Bytecode of generated methods, kept from one start of the program to the next.

Python keeps the bytecode of modules in `__pycache__`, but not that of the methods which dataclasses, attrs and named
tuples generate as text: parsing and compiling these texts would be a quarter of a start. A file beside the bytecode of
this program keeps them under their texts, so that a changed class finds no outdated bytecode.
"""

from __future__ import annotations

import collections
import marshal
import re
import sys
import typing
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from . import kept_files

if TYPE_CHECKING:
    from importlib.abc import Loader

GENERATORS: tuple[ModuleType, ...] = (collections, typing)
"""Modules of Python that compile texts which they generate: methods, and annotations of named tuples."""

GENERATORS_TO_COME = frozenset({"dataclasses", "attr._make", f"{__package__.partition('.')[0]}.protocol.schema"})
"""Modules that do so, imported later; the last two are that of attrs, for the classes of trio, and that of messages."""

NUMBER_OF_CLASS = re.compile(r"(?<=hash\(\()\s*-?\d+(?=,)")
"""The number in each method `__hash__` of attrs: the hash of the class's name, another one in each process."""

CodeKey = tuple[str, str, str]
"""The text, the name of its file and its mode (exec or eval): all that its bytecode depends on."""


class KeptCode:
    """A replacement of `compile`, `exec` and `eval` that looks for each text in a dictionary first."""

    def __init__(self, kept: Mapping[CodeKey, CodeType]) -> None:
        self.kept = kept
        self.used: dict[CodeKey, CodeType] = {}
        self.compiled_count = 0

    def compile(self, source: Any, filename: str, mode: str) -> CodeType:
        """Return the bytecode of a text. Raises SyntaxError."""
        if filename.startswith("<attrs generated") and "hash((" in source:
            # With one number for each class and all processes, the text is the same at the next start.
            source = NUMBER_OF_CLASS.sub(str(zlib.crc32(filename.encode())), source)
        key = (source, filename, mode)
        code = self.used.get(key) or self.kept.get(key)
        if code is None:
            code = compile(source, filename, mode, dont_inherit=True)
            self.compiled_count += 1
        self.used[key] = code
        return code

    def exec(self, source: str | CodeType, globals_: dict[str, Any], locals_: Any = None) -> None:
        """Run a text or bytecode. Raises what it raises, and SyntaxError."""
        code = self.compile(source, "<string>", "exec") if isinstance(source, str) else source
        exec(code, globals_, locals_)  # noqa: S102 (as its callers do)

    def eval(self, source: str | CodeType, globals_: dict[str, Any], locals_: Any = None) -> Any:
        """Return the value of an expression. Raises what it raises, and SyntaxError."""
        code = self.compile(source, "<string>", "eval") if isinstance(source, str) else source
        return eval(code, globals_, locals_)  # noqa: S307 (as its callers do)

    def offer_to(self, module: ModuleType) -> None:
        """Let a module find these functions before Python's, as names of its own."""
        vars(module).update(compile=self.compile, exec=self.exec, eval=self.eval)


class OfferingFinder:
    """A finder on `sys.meta_path` that lets an `OfferingLoader` run the modules of these names."""

    def __init__(self, names: frozenset[str], code: KeptCode) -> None:
        self.names = names
        self.code = code

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """Return the spec of one of the modules, None for any other module."""
        if name not in self.names:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = OfferingLoader(spec.loader, self.code)  # type: ignore[assignment]
        return spec


class OfferingLoader:
    """A loader that offers kept bytecode to a module before the module's own loader runs it."""

    def __init__(self, loader: Loader, code: KeptCode) -> None:
        self.loader = loader
        self.code = code

    def create_module(self, spec: Any) -> ModuleType | None:
        """Return the module that the module's own loader creates; None: Python's usual one."""
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module with its own loader. Raises what the module raises."""
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.code.offer_to(module)
        self.loader.exec_module(module)


@contextmanager
def kept_bytecode(imports: str) -> Iterator[None]:
    """Keep the bytecode of methods that modules generate while they are imported, in a file named after these imports.

    The file holds what the last imports used. Where it cannot be written, all texts are compiled at each start; a
    damaged file is replaced.
    """
    path = kept_files.path_of(imports)
    code = KeptCode(_known(kept_files.read(path)))
    finder = OfferingFinder(GENERATORS_TO_COME, code)
    sys.meta_path.insert(0, finder)
    for module in _generators():
        code.offer_to(module)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for module in _generators():
            for name in ("compile", "exec", "eval"):
                vars(module).pop(name, None)
    if code.compiled_count and path is not None and not sys.dont_write_bytecode:
        kept_files.write(path, marshal.dumps(code.used))


def _generators() -> Iterator[ModuleType]:
    yield from GENERATORS
    for name in GENERATORS_TO_COME:
        if (module := sys.modules.get(name)) is not None:
            yield module


def _known(content: bytes) -> Mapping[CodeKey, CodeType]:
    with suppress(EOFError, ValueError, TypeError):
        kept = marshal.loads(content)  # noqa: S302 (trusted as much as the bytecode beside it)
        if isinstance(kept, dict):
            return kept
    return {}
