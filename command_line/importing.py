"""Imports at the start of a program without what would take a third of the time and most programs never use."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .generated_code import kept_bytecode
from .kept_modules import kept_modules

if TYPE_CHECKING:
    from importlib.abc import Loader

DEFERRED = frozenset(
    {
        "attrs.converters",
        "attrs.validators",
        "bz2",
        "difflib",
        "hashlib",
        "hmac",
        "idna",
        "lz4.frame",
        "lzma",
        "secrets",
        "snappy",
        "ssl",
        "subprocess",
        "tokenize",
        "traceback",
        "zstandard",
    }
)
"""Modules that are run when one of their names is first used.

trio imports ssl, hmac, idna and subprocess, shutil the archive formats. OpenSSL, which ssl, hashlib and hmac load,
would be a tenth of an idle broker's memory.
"""

THREAD_LIBRARY = "libpthread.so.0"
"""The file that glibc calls pthread: of each version, those that have all of pthread in libc too."""


class DeferredModule(ModuleType):
    """A module whose code runs when an attribute is first asked for that the module does not have yet.

    Unlike the modules of `importlib.util.LazyLoader`, this module stays unused while it is imported again, as by
    ``import ssl`` in a second module: Python 3.11 looks at ``__spec__`` then.
    """

    def __getattr__(self, name: str) -> Any:
        """Run the module and return its attribute.

        Raises AttributeError if the module does not define the attribute; also, without running the module, for names
        such as ``__file__``, by which debuggers and `inspect` look at all modules.
        """
        if not (name.startswith("__") and name.endswith("__")):
            # Threads that use the module meanwhile wait. The module itself, and what it imports, see it incomplete.
            with _running:
                if isinstance(loader := self.__loader__, DeferringLoader):
                    self.__loader__ = loader.loader
                    if self.__spec__ is not None:
                        self.__spec__.loader = loader.loader
                    loader.loader.exec_module(self)
                    self.__class__ = ModuleType
        return ModuleType.__getattribute__(self, name)


_running = RLock()


class DeferringLoader:
    """A loader that creates a `DeferredModule` and leaves the code to ``loader``."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module, which is not run."""
        return DeferredModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module is run by its first use."""


class DeferringFinder:
    """A finder on `sys.meta_path` that defers the modules of these names which are Python source."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """Return the spec of a module to be deferred, None for any other module."""
        if name not in self.names:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None and spec.origin.endswith(".py") and spec.loader is not None:
            spec.loader = DeferringLoader(spec.loader)  # type: ignore[assignment]
        return spec


@contextmanager
def lean_imports(imports: str) -> Iterator[None]:
    """Import without garbage collections, without the modules `DEFERRED` and without processes of other programs.

    The bytecode of methods that the imported modules generate is kept under the name ``imports``.

    The collections would take a tenth of a start and find nothing; the objects that exist at the end, which modules
    keep, are never looked at again.
    """
    gc.disable()
    finder = DeferringFinder(DEFERRED)
    try:
        # The last finder on sys.meta_path is asked first.
        with _thread_library_known(), kept_modules(imports), kept_bytecode(imports):
            sys.meta_path.insert(0, finder)
            yield
    finally:
        sys.meta_path.remove(finder)
        gc.freeze()
        gc.enable()


@contextmanager
def _thread_library_known() -> Iterator[None]:
    """Answer `ctypes.util.find_library` for trio, which asks for pthread to name its threads.

    The function itself would run ldconfig, a compiler or objdump, for 5 ms at best. It is left in place for other C
    libraries than glibc.
    """
    if "ctypes.util" in sys.modules or "trio" in sys.modules or not _has_glibc():
        yield
        return
    import ctypes

    known = ModuleType("ctypes.util")
    vars(known)["find_library"] = {"pthread": THREAD_LIBRARY}.get
    sys.modules["ctypes.util"] = vars(ctypes)["util"] = known
    try:
        yield
    finally:
        # What imports ctypes.util from now on gets the module itself.
        del sys.modules["ctypes.util"], vars(ctypes)["util"]


def _has_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (OSError, ValueError):
        return False
