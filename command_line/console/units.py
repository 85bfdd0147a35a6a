"""Numbers and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

MS_PER_S = 1000
MOST_DIGITS = 18
"""Digits of a number that surely fits into 64 bits."""
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_COUNT_UNITS = ("", "k", "M", "G")
_AGES = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def byte_text(size: float) -> str:
    """Return a size in bytes with a binary unit: ``1.5 KiB``."""
    unit = _BYTE_UNITS[0]
    for unit in _BYTE_UNITS:
        if size < 1024 or unit == _BYTE_UNITS[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == _BYTE_UNITS[0] else f"{size:.1f} {unit}"


def short_count(count: float) -> str:
    """Return a count with at most three digits and a unit: ``12.3k``."""
    unit = ""
    for unit in _COUNT_UNITS:
        if count < 1000 or unit == _COUNT_UNITS[-1]:
            break
        count /= 1000
    text = f"{count:.0f}" if count == int(count) or count >= 100 else f"{count:.1f}"
    return text + unit


def time_text(time_ms: int) -> str:
    """Return a time in UTC with milliseconds; a dash for -1 and for times that no calendar has."""
    if time_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(time_ms / MS_PER_S, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03}"
    except (ValueError, OverflowError, OSError):
        return "-"


def parse_time_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 time, in UTC without a zone, or of a number of milliseconds.

    Raises ValueError.
    """
    if text.isdecimal() and len(text) <= MOST_DIGITS:
        return int(text)
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * MS_PER_S)


def age_text(age_ms: int) -> str:
    """Return an age with its largest unit: ``5 min``."""
    seconds = max(age_ms, 0) // MS_PER_S
    return next((f"{seconds // size} {unit}" for size, unit in _AGES if seconds >= size), "now")
