"""S3, Google Cloud Storage and Azure Data Lake Storage, by obstore, the Python interface of Rust's `object_store`.

An object appears whole, when its last byte was accepted (an upload in parts when the parts are completed), and a
conditional put (`If-None-Match: *` and its like) refuses an object that exists. Objects cannot be renamed: a move is a
copy inside the store and a removal. All three list what was written before.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from typing import Any, BinaryIO, Self, TypeVar, cast
from urllib.parse import urlsplit

from ..errors import PipelineError
from ..hadoop_configuration import hadoop_settings
from .hadoop_clients import client_settings
from .interruptible import interruptible
from .retries import create_once, try_again
from .store_settings import Limits, StoreSettings, replaced_variables
from .stores import StoredFile, StoreError

EXTRAS = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gcs", "abfs": "azure", "abfss": "azure", "az": "azure"}
"""The extra of gregor-broker that a scheme needs."""
PART_BYTES = 8 << 20
"""The size of the parts of an upload. A larger file waits on disk for its upload."""
PARTS_AT_ONCE = 4

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class ObjectStore:
    """A bucket or container; see `stores.Store`.

    Its settings are the environment variables and the settings of Spark of the process that pickles it, which executors
    then use as well: without access keys among them each process finds credentials of its own (instance roles,
    profiles, tokens).
    """

    uri: str
    settings: StoreSettings | None = field(default=None, compare=False, repr=False)

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
        create_once(
            lambda: self._put(key, contents, "create"),
            lambda: self.read(key),
            contents,
            f"{self.uri}/{key}",
            self.limits.total_s,
        )

    def replace(self, key: str, contents: bytes) -> None:
        """Put an object, see Store.replace."""
        try_again(lambda: self._put(key, contents, "overwrite"), self.limits.total_s)

    def open_output(self, key: str) -> BinaryIO:
        """Open a file that is uploaded when it is closed, see Store.open_output."""
        return cast(BinaryIO, _Upload(self, key))

    def upload(self, key: str, file: BinaryIO) -> None:
        """Put an object from a file of this machine, in parts if it is large. Raises StoreError."""

        def put() -> None:
            file.seek(0)
            self._ask(
                key,
                lambda library, client: library.put(
                    client, key, file, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
                ),
            )

        try_again(put, self.limits.total_s)

    def move(self, source: str, target: str) -> None:
        """Copy an object and remove it, see Store.move."""

        def copy() -> None:
            try:
                self._ask(source, lambda library, client: library.copy(client, source, target))
            except FileNotFoundError:
                # Moved before, perhaps by a call whose answer was lost.
                self.size(target)

        try_again(copy, self.limits.total_s)
        self.remove(source)

    def remove(self, key: str) -> None:
        """Remove an object, see Store.remove."""

        def delete() -> None:
            with contextlib.suppress(FileNotFoundError):
                self._ask(key, lambda library, client: library.delete(client, key))

        try_again(delete, self.limits.total_s)

    def files(self, folder: str) -> Iterator[StoredFile]:
        """Yield the objects below a prefix, see Store.files."""
        prefix = None if folder in ("", ".") else folder

        def pages() -> list[StoredFile]:
            return self._ask(
                folder,
                lambda library, client: [
                    StoredFile(found["path"], found["size"]) for page in library.list(client, prefix) for found in page
                ],
            )

        # A page whose answer is cut ends the library's listing, which can only begin again.
        yield from try_again(pages, self.limits.total_s)

    @property
    def limits(self) -> Limits:
        """The time limits of a request to this store."""
        return self._settings().limits

    def _put(self, key: str, contents: bytes, mode: str) -> None:
        self._ask(key, lambda library, client: library.put(client, key, contents, mode=mode, use_multipart=False))

    def _ask(self, key: str, request: Callable[[Any, Any], Answer]) -> Answer:
        """Return the answer of a request. Raises FileNotFoundError, FileExistsError, StoreError."""
        scheme = urlsplit(self.uri).scheme
        library = _library(scheme)
        try:
            client = _client(self.uri, self._settings())
            return interruptible(lambda: request(library, client))
        except library.exceptions.AlreadyExistsError as fault:
            raise FileExistsError(f"{self.uri}/{key} exists") from fault
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.uri}/{key} does not exist") from None
        except (library.exceptions.BaseError, OSError) as fault:
            raise StoreError(f"{self.uri}/{key}: {_reason(fault, self.limits)}") from fault

    def _settings(self) -> StoreSettings:
        return self.settings if self.settings is not None else _settings_here(self.uri)


class _Upload:
    """A file of this machine that `close` uploads: one that is dropped, as after an error, leaves no object.

    So an upload can be repeated as a whole, whichever of its requests has failed.
    """

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store = store
        self._key = key
        self._file = tempfile.SpooledTemporaryFile(max_size=PART_BYTES)  # noqa: SIM115
        self.closed = False

    def __del__(self) -> None:
        self._file.close()

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
        """Add bytes. Raises OSError if the disk is full."""
        return self._file.write(contents)

    def close(self) -> None:
        """Upload the file. Raises StoreError."""
        if not self.closed:
            self.closed = True
            with self._file:
                self._store.upload(self._key, cast(BinaryIO, self._file))


def _library(scheme: str) -> Any:
    try:
        import obstore
    except ImportError:
        raise PipelineError(f"{scheme}:// needs `pip install 'gregor-broker[{EXTRAS[scheme]}]'`") from None
    return obstore


def settings_replaced(uri: str) -> list[str]:
    """Return the variables of the environment that settings of Spark replace for a store. Raises OptionError."""
    kind = EXTRAS[urlsplit(uri).scheme]
    found = client_settings(uri, kind, hadoop_settings())
    return replaced_variables(kind, StoreSettings.of_environment(kind), found.variables)


def _settings_here(uri: str) -> StoreSettings:
    """Return the settings of this process: those of Spark above those of the environment. Raises PipelineError."""
    kind = EXTRAS[urlsplit(uri).scheme]
    found = client_settings(uri, kind, hadoop_settings())
    environment = replace(StoreSettings.of_environment(kind), limits=found.limits, proxy_url=found.proxy_url)
    return environment.with_variables(kind, found.variables)


@cache
def _client(uri: str, settings: StoreSettings) -> Any:
    """Return the client of this process; it has connections, so that it cannot be pickled."""
    from obstore.exceptions import UnknownConfigurationKeyError
    from obstore.store import from_url

    config: dict[str, Any] = {}
    for name, text in settings.variables:
        # Other tools have settings of their own with the same prefix.
        with contextlib.suppress(UnknownConfigurationKeyError):
            from_url(uri, config={name: text})
            config[name] = text
    limits = settings.limits
    options: dict[str, Any] = {
        "timeout": timedelta(seconds=limits.request_s),
        "connect_timeout": timedelta(seconds=limits.connect_s),
    }
    # The key of a service account of Google may have the address, too.
    if any(text.startswith("http:") or '"http:' in text for text in config.values()):
        options["allow_http"] = True
    if settings.proxy_url:
        options["proxy_url"] = settings.proxy_url
    more: dict[str, Any] = {}
    if EXTRAS[urlsplit(uri).scheme] == "s3":
        more = _credentials(config)
    retry = {"max_retries": limits.retries, "retry_timeout": timedelta(seconds=limits.total_s)}
    return from_url(uri, config=config, client_options=options, retry_config=retry, **more)


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


def _reason(fault: BaseException, limits: Limits) -> str:
    """Return the first lines of an error: after them the library prints its structures."""
    text, _, structures = str(fault).partition("\n\nDebug source")
    told = " ".join(text.split())[:400]
    if "TimedOut" in structures or "kind: Timeout" in structures:
        told = f"no answer within {limits.request_s:g} s: {told}"
    return told
