"""Paths of users on this machine's file system, plain or as `file:` URIs; other URIs are refused.

For files that may be in other stores see `filesystems.locations`.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .errors import OptionError

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/.*", re.DOTALL)


def local_path(text: str) -> Path:
    """Return the path that `text` names: `/lake`, `lake`, `file:/lake` and `file:///lake`.

    Raises OptionError for a URI of another scheme or host, which would otherwise become a folder of that name.
    """
    scheme = scheme_of(text)
    if scheme is None:
        return Path(text)
    if scheme != "file":
        raise OptionError(f"{text}: {scheme} is not supported: a path of this machine, or file:///path, is needed")
    uri = urlsplit(text)
    if uri.netloc not in ("", "localhost"):
        raise OptionError(f"{text} is on the host {uri.netloc}: write file:///path, with three slashes")
    if uri.query or uri.fragment:
        raise OptionError(f"{text}: a file has no query and no fragment: write %3F for ? and %23 for #")
    return Path(unquote(uri.path))


def scheme_of(text: str) -> str | None:
    """Return the scheme of a URI in lower case; None for a path."""
    found = _URI.fullmatch(text)
    return None if found is None else found[1].lower()


def path_argument(text: str) -> Path:
    """Convert an argument of argparse as `local_path` does. Raises ArgumentTypeError."""
    try:
        return local_path(text)
    except OptionError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from fault


def directory_argument(text: str) -> str:
    """Convert an argument of argparse as `path_argument` does, and return it as text."""
    return str(path_argument(text))
