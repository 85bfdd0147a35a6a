"""Metrics as text, in the format that Prometheus scrapes (text/plain; version=0.0.4).

This module is thirty lines; a client library would slow the start more than the whole listener does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..monitoring.metrics import Family, Labels

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LINES_AT_A_TIME = 500

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def exposition(families: Iterable[Family]) -> Iterator[str]:
    """Yield the text in pieces, each small enough not to delay other tasks."""
    lines: list[str] = []
    for family in families:
        kind = "counter" if family.name.endswith("_total") else "gauge"
        lines.append(f"# TYPE {family.name} {kind}\n")
        for labels, value in family.samples:
            lines.append(f"{family.name}{_braced(labels)} {_number(value)}\n")
            if len(lines) >= LINES_AT_A_TIME:
                yield "".join(lines)
                lines.clear()
    yield "".join(lines)


def _braced(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()) + "}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(value)
