"""S3, Google Cloud Storage and Azure Data Lake Storage, by obstore, the Python interface of Rust's `object_store`.

An object appears whole, when its last byte was accepted (an upload in parts when the parts are completed), and a
conditional put (`If-None-Match: *` and its like) refuses an object that exists. Objects cannot be renamed: a move is a
copy inside the store and a removal. All three list what was written before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, BinaryIO, Self, TypeVar, cast
from urllib.parse import urlsplit

from ..errors import PipelineError
from .retries import create_once, try_again
from .stores import StoredFile, StoreError

EXTRAS = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gcs", "abfs": "azure", "abfss": "azure", "az": "azure"}
"""The extra of gregor-broker that a scheme needs."""
PREFIXES = {"s3": "AWS_", "gcs": "GOOGLE_", "azure": "AZURE_"}
"""The beginning of the environment variables that hold settings, in the words of obstore and the vendors' tools."""
CLIENT_OPTIONS = {"timeout": "120s", "connect_timeout": "10s"}
RETRIES: dict[str, Any] = {"max_retries": 6}
"""The repetitions of a request by the client, with growing pauses, of at most 15 s each."""
PART_BYTES = 8 << 20
"""The size of the parts of an upload, which a task holds in memory."""

Answer = TypeVar("Answer")
Settings = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ObjectStore:
    """A bucket or container; see `stores.Store`.

    Its settings are the environment variables of the process that pickles it, which executors then use as well:
    without access keys among them each process finds credentials of its own (instance roles, profiles, tokens).
    """

    uri: str
    settings: Settings | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, uri: str) -> Self:
        """Return the store of a URI without a path. Raises PipelineError without the library that it needs."""
        _library(urlsplit(uri).scheme)
        return cls(uri)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.uri, self._settings())

    def read(self, key: str) -> bytes:
        """Return the contents of an object, see Store.read."""
        return self._ask(key, lambda library, client: bytes(library.get(client, key).bytes()))

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Return bytes of an object, see Store.read_range."""
        return self._ask(key, lambda library, client: bytes(library.get_range(client, key, start=start, length=length)))

    def size(self, key: str) -> int:
        """Return the size of an object, see Store.size."""
        return self._ask(key, lambda library, client: int(library.head(client, key)["size"]))

    def create(self, key: str, contents: bytes) -> None:
        """Put an object on condition that there is none, see Store.create."""
        create_once(lambda: self._put(key, contents, "create"), lambda: self.read(key), contents, f"{self.uri}/{key}")

    def replace(self, key: str, contents: bytes) -> None:
        """Put an object, see Store.replace."""
        try_again(lambda: self._put(key, contents, "overwrite"))

    def open_output(self, key: str) -> BinaryIO:
        """Open an upload, see Store.open_output."""
        inner = self._ask(key, lambda library, client: library.open_writer(client, key, buffer_size=PART_BYTES))
        return cast(BinaryIO, _Upload(self, key, inner))

    def move(self, source: str, target: str) -> None:
        """Copy an object and remove it, see Store.move."""

        def copy() -> None:
            try:
                self._ask(source, lambda library, client: library.copy(client, source, target))
            except FileNotFoundError:
                # Moved before, perhaps by a call whose answer was lost.
                self.size(target)

        try_again(copy)
        self.remove(source)

    def remove(self, key: str) -> None:
        """Remove an object, see Store.remove."""

        def delete() -> None:
            with contextlib.suppress(FileNotFoundError):
                self._ask(key, lambda library, client: library.delete(client, key))

        try_again(delete)

    def files(self, folder: str) -> Iterator[StoredFile]:
        """Yield the objects below a prefix, see Store.files."""
        prefix = None if folder in ("", ".") else folder
        pages = self._ask(folder, lambda library, client: iter(library.list(client, prefix)))
        while (page := self._ask(folder, lambda library, client: next(pages, None))) is not None:
            yield from (StoredFile(found["path"], found["size"]) for found in page)

    def _put(self, key: str, contents: bytes, mode: str) -> None:
        self._ask(key, lambda library, client: library.put(client, key, contents, mode=mode, use_multipart=False))

    def _ask(self, key: str, request: Callable[[Any, Any], Answer]) -> Answer:
        """Return the answer of a request. Raises FileNotFoundError, FileExistsError, StoreError."""
        scheme = urlsplit(self.uri).scheme
        library = _library(scheme)
        try:
            return request(library, _client(self.uri, self._settings()))
        except library.exceptions.AlreadyExistsError as fault:
            raise FileExistsError(f"{self.uri}/{key} exists") from fault
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.uri}/{key} does not exist") from None
        except (library.exceptions.BaseError, OSError) as fault:
            raise StoreError(f"{self.uri}/{key}: {_reason(fault)}") from fault

    def _settings(self) -> Settings:
        if self.settings is not None:
            return self.settings
        prefix = PREFIXES[EXTRAS[urlsplit(self.uri).scheme]]
        return tuple(sorted((name, text) for name, text in os.environ.items() if name.startswith(prefix)))


class _Upload:
    """An upload that only `close` completes: one that is dropped, as after an error, leaves no object."""

    def __init__(self, store: ObjectStore, key: str, inner: Any) -> None:
        self._store = store
        self._key = key
        self._inner = inner
        self.closed = False

    def writable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return False."""
        return False

    def flush(self) -> None:
        """Do nothing: parts of an upload have a least size."""

    def write(self, contents: bytes) -> int:
        """Add bytes. Raises StoreError."""
        self._store._ask(self._key, lambda library, client: self._inner.write(contents))
        return len(contents)

    def close(self) -> None:
        """Complete the upload. Raises StoreError."""
        if not self.closed:
            self.closed = True
            self._store._ask(self._key, lambda library, client: self._inner.close())


def _library(scheme: str) -> Any:
    try:
        import obstore
    except ImportError:
        raise PipelineError(f"{scheme}:// needs `pip install 'gregor-broker[{EXTRAS[scheme]}]'`") from None
    return obstore


@cache
def _client(uri: str, settings: Settings) -> Any:
    """Return the client of this process; it has connections, so that it cannot be pickled."""
    from obstore.exceptions import UnknownConfigurationKeyError
    from obstore.store import from_url

    config: dict[str, Any] = {}
    for name, text in settings:
        # Other tools have settings of their own with the same prefix.
        with contextlib.suppress(UnknownConfigurationKeyError):
            from_url(uri, config={name: text})
            config[name] = text
    options: dict[str, Any] = dict(CLIENT_OPTIONS)
    if any(
        name.endswith("_ENDPOINT") or "_ENDPOINT_URL" in name for name in config if config[name].startswith("http:")
    ):
        options["allow_http"] = True
    more: dict[str, Any] = {}
    if EXTRAS[urlsplit(uri).scheme] == "s3":
        more = _credentials(config)
    return from_url(uri, config=config, client_options=options, retry_config=RETRIES, **more)


def _credentials(config: dict[str, Any]) -> dict[str, Any]:
    """Return boto3's credentials, if it finds any: it knows profiles and single sign-on, which obstore does not."""
    if "AWS_ACCESS_KEY_ID" in config or "AWS_SKIP_SIGNATURE" in config:
        return {}
    try:
        from boto3 import Session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return {}
    session = Session()
    if session.get_credentials() is None:
        return {}
    if session.region_name and not {"AWS_REGION", "AWS_DEFAULT_REGION"} & set(config):
        config["AWS_REGION"] = session.region_name
    return {"credential_provider": Boto3CredentialProvider(session)}


def _reason(fault: BaseException) -> str:
    """Return the first lines of an error: after them the library prints its structures."""
    text = str(fault).split("\n\nDebug source", 1)[0]
    return " ".join(text.split())[:400]
