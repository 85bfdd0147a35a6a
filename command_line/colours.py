"""Colours of a terminal, for texts that deserve attention; https://no-color.org and dumb terminals are honoured."""

from __future__ import annotations

import os
from typing import TextIO

BOLD, RED, GREEN, YELLOW = 1, 31, 32, 33
"""Parameters of the escape sequence SGR (ECMA-48)."""


def coloured(text: str, style: int, stream: TextIO) -> str:
    """Return the text in a style if ``stream`` is a terminal that shows colours, else unchanged."""
    shows_colours = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[{style}m{text}\x1b[0m" if shows_colours else text
