"""Files of bytecode beside the bytecode of this program, each named after the imports that it serves."""

from __future__ import annotations

import os
from contextlib import suppress


def path_of(imports: str) -> str | None:
    """Return the path of a file beside this module's bytecode; None if Python keeps no bytecode of this module."""
    bytecode = None if __spec__ is None else __spec__.cached
    return None if bytecode is None else f"{bytecode.removesuffix('.pyc')}.{imports}"


def read(path: str | None) -> bytes:
    """Return what a file contains, nothing if it cannot be read."""
    with suppress(OSError):
        if path is not None:
            with open(path, "rb") as file:
                return file.read()
    return b""


def write(path: str, *content: bytes | memoryview) -> None:
    """Replace a file as a whole; the older one stays if it cannot be replaced."""
    unfinished = f"{path}.{os.getpid()}"
    with suppress(OSError):
        try:
            with open(unfinished, "xb") as file:
                file.writelines(content)
            os.replace(unfinished, path)
        except OSError:
            with suppress(OSError):
                os.unlink(unfinished)
            raise
