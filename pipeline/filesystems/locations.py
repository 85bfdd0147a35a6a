"""Locations of files and folders as users write them: a path, `file:///path`, or the URI of a store such as `s3a://bucket/lake`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from ..errors import OptionError
from ..local_paths import local_path, scheme_of
from .remote_path import RemotePath
from .stores import Store

Location = Path | RemotePath

OBJECT_STORES = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "az")
"""The schemes of S3, Google Cloud Storage and Azure Data Lake Storage, as Spark and others write them."""
HDFS = ("hdfs", "viewfs")


def location(text: str) -> Location:
    """Return the file or folder that `text` names. Raises OptionError for a URI that is not supported."""
    scheme = scheme_of(text)
    if scheme is None or scheme == "file":
        return local_path(text)
    if scheme not in (*OBJECT_STORES, *HDFS):
        known = ", ".join(f"{name}://" for name in ("file", *OBJECT_STORES, *HDFS))
        raise OptionError(f"{text}: {scheme} is not supported: a path of this machine, or one of {known} is needed")
    uri = urlsplit(text)
    if not uri.netloc:
        raise OptionError(f"{text} has no host: write {scheme}://{'HOST:PORT' if scheme in HDFS else 'BUCKET'}/path")
    if uri.query or uri.fragment:
        raise OptionError(f"{text}: a file has no query and no fragment: write %3F for ? and %23 for #")
    return RemotePath(_store(scheme, f"{scheme}://{uri.netloc}"), PurePosixPath(unquote(uri.path).strip("/")))


def settings_notes(places: Iterable[object]) -> list[str]:
    """Return a line for each store among `places` for which settings of Spark replace variables of the environment.

    Raises OptionError for settings of Spark that cannot be used.
    """
    from .object_store import ObjectStore, settings_replaced

    stores = {
        place.store.uri for place in places if isinstance(place, RemotePath) and isinstance(place.store, ObjectStore)
    }
    return [
        f"{uri}: Spark's settings of this store are used, and not {', '.join(names)}"
        for uri in sorted(stores)
        if (names := settings_replaced(uri))
    ]


def name_below(path: Location, folder: Location) -> str:
    """Return the path of a file relative to a folder above it. Raises ValueError if it is not below."""
    if isinstance(path, RemotePath) and isinstance(folder, RemotePath):
        return path.relative_to(folder).as_posix()
    if isinstance(path, Path) and isinstance(folder, Path):
        return path.relative_to(folder).as_posix()
    raise ValueError(f"{path} is not below {folder}")


def location_argument(text: str) -> Location:
    """Convert an argument of argparse as `location` does. Raises ArgumentTypeError."""
    try:
        return location(text)
    except OptionError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from fault


def _store(scheme: str, uri: str) -> Store:
    if scheme in HDFS:
        from .hdfs_store import HdfsStore

        return HdfsStore.of(uri)
    from .object_store import ObjectStore

    return ObjectStore.of(uri)
