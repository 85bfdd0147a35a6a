"""Modules of handlers that are imported when the first of their requests arrives.

Most brokers never see most of the APIs: importing all handlers and their messages would take a quarter of a start. The
table of APIs needs a function for each row, so here functions are deferred, and a module with its first call; libraries
are deferred as modules (`DeferredModule` in `command_line/importing.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

HANDLERS = f"{__package__}.handlers"


class DeferredFunction:
    """A function of a module that is imported by the first call."""

    __slots__ = ("__wrapped__", "module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        """Import the module for `__wrapped__`, the name by which `inspect.unwrap` asks for the function itself."""
        if attribute != "__wrapped__":
            raise AttributeError(attribute)
        self.__wrapped__: Callable[..., Any] = getattr(import_module(self.module), self.name)
        return self.__wrapped__

    def __call__(self, *arguments: Any) -> Any:
        return self.__wrapped__(*arguments)


class DeferredHandlers:
    """A stand-in for a module in `handlers/`: each of its attributes is a `DeferredFunction`."""

    def __init__(self, name: str) -> None:
        self._module = f"{HANDLERS}.{name}"

    def __getattr__(self, name: str) -> DeferredFunction:
        return DeferredFunction(self._module, name)


def deferred_handlers(name: str) -> DeferredHandlers:
    """Return the stand-in for a module of `handlers/` that is not imported yet.

    Raises AttributeError for names that no such module has, by which `import` and `inspect` look at packages.
    """
    if name.startswith("_"):
        raise AttributeError(name)
    return DeferredHandlers(name)
