"""Modules of handlers that are imported when the first of their requests arrives.

Most brokers never see most of the APIs: importing all handlers and their messages would take a quarter of a start.
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
