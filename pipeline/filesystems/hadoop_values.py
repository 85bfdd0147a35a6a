"""Values of Hadoop's configuration: words, times, numbers; a bucket's own values before the general ones."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..errors import OptionError

_TIME = re.compile(r"(\d+)\s*(ns|us|ms|s|m|h|d)?")
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class HadoopValues:
    """The settings of Hadoop, by keys without `spark.hadoop.`, as one place of a store sees them.

    `narrowed` returns the keys of that place, the most specific one first. `is_read` has the keys that were asked for.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings

    def keys_of(self, key: str) -> list[str]:
        """Return the keys under which a value is looked up."""
        return [key]

    def text(self, *keys: str) -> str | None:
        """Return the value of the first of these keys that has one that is not empty."""
        for each in keys:
            for key in self.keys_of(each):
                if found := self._settings.get(key, "").strip():
                    return found
        return None

    def name_of(self, *keys: str) -> str:
        """Return the key that `text` has taken, as the user wrote it for Spark."""
        for each in keys:
            for key in self.keys_of(each):
                if self._settings.get(key, "").strip():
                    return f"spark.hadoop.{key}"
        return f"spark.hadoop.{keys[0]}"

    def flag(self, *keys: str) -> bool | None:
        """Return a value of true or false. Raises OptionError for another one."""
        found = self.text(*keys)
        if found is None:
            return None
        if found.lower() not in ("true", "false"):
            raise OptionError(f"{self.name_of(*keys)}: {found!r} is not true or false")
        return found.lower() == "true"

    def number(self, *keys: str) -> int | None:
        """Return a value that is a number. Raises OptionError for another one."""
        found = self.text(*keys)
        if found is None:
            return None
        if not found.isdigit():
            raise OptionError(f"{self.name_of(*keys)}: {found!r} is not a number")
        return int(found)

    def seconds(self, *keys: str) -> float | None:
        """Return a time in seconds, by default of milliseconds; None also for 0, no limit. Raises OptionError."""
        found = self.text(*keys)
        if found is None:
            return None
        parsed = _TIME.fullmatch(found.lower())
        if parsed is None:
            raise OptionError(f"{self.name_of(*keys)}: {found!r} is not a time, such as 30s or milliseconds")
        return int(parsed[1]) * _UNITS[parsed[2] or "ms"] or None


class BucketValues(HadoopValues):
    """The settings of a bucket of S3: `fs.s3a.bucket.NAME.x` before `fs.s3a.x`."""

    def __init__(self, settings: Mapping[str, str], bucket: str) -> None:
        super().__init__(settings)
        self._bucket = bucket

    def keys_of(self, key: str) -> list[str]:
        """Return the bucket's key, then the general one."""
        return [key.replace("fs.s3a.", f"fs.s3a.bucket.{self._bucket}.", 1), key]


class AccountValues(HadoopValues):
    """The settings of an account of Azure: `x.CONTAINER.HOST` before `x.HOST` before `x`."""

    def __init__(self, settings: Mapping[str, str], container: str, host: str) -> None:
        super().__init__(settings)
        self._container = container
        self._host = host

    def keys_of(self, key: str) -> list[str]:
        """Return the container's key, the account's, the general one."""
        return [f"{key}.{self._container}.{self._host}", f"{key}.{self._host}", key]
