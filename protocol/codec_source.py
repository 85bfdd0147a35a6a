"""The common part of the generators of decoders and encoders: a builder of source text."""

from __future__ import annotations

import linecache
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """The body of one generated function.

    Consecutive fields of constant width form a *run*, which one precompiled `struct.Struct` reads or writes. Code that
    needs a value of the run, or that opens or closes a block, ends the run first (`end_run`).
    """

    def __init__(self, scope: dict[str, Any]) -> None:
        self.scope = scope
        """The globals of the function: the structs, classes and defaults in its text."""
        self._lines: list[str] = []
        self._depth = 1
        self._names = 0

    def line(self, text: str) -> None:
        """Add one line at the current depth."""
        self._lines.append("    " * self._depth + text)

    def end_run(self) -> None:
        """Write the code for the run."""
        raise NotImplementedError

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Indent the lines that are added inside by one level, below `header`."""
        self.end_run()
        self.line(header)
        self._depth += 1
        yield
        self.end_run()
        self._depth -= 1

    def local(self, prefix: str) -> str:
        """Return a name for a local variable that was not used before."""
        self._names += 1
        return f"{prefix}{self._names}"

    def named(self, prefix: str, value: object) -> str:
        """Return a name by which the generated text can refer to `value`."""
        for name, known in self.scope.items():
            if known is value:
                return name
        name = f"{prefix}_{len(self.scope)}"
        self.scope[name] = value
        return name

    def struct_method(self, codes: str, method: str) -> str:
        """Return a name for `unpack_from` or `pack` of the big-endian struct with these codes."""
        name = f"{method}_{codes}".replace("?", "t")
        if name not in self.scope:
            self.scope[name] = getattr(struct.Struct(">" + codes), method)
        return name

    def compile(self, signature: str, title: str) -> Any:
        """Compile the text and return its function; tracebacks show the text under the name `<codec TITLE>`."""
        text = "\n".join([f"def {signature}:", *self._lines, ""])
        filename = f"<codec {title}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.scope)  # noqa: S102 - made from declarations, never from input
        return self.scope[signature.partition("(")[0]]
