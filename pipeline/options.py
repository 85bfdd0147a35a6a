"""The options that both formats share, validated: an unknown option is refused with the nearest known name."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from .columns.schemas import Mode, arrow_schema, spark_schema
from .errors import OptionError
from .kafka.offset_options import parse_bool, parse_int

DEFAULT_BATCH_ROWS = 10_000


class SourceOptions(Mapping[str, str]):
    """The options by name in any case, as Spark passes them; options that begin with `kafka.` are not validated."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        self._values = {name.lower(): value for name, value in given.items()}
        by_lower_name = {name.lower(): name for name in known}
        for name in self._values:
            if name not in by_lower_name and not name.startswith("kafka."):
                nearest = difflib.get_close_matches(name, by_lower_name, n=1)
                hint = f"; did you mean {by_lower_name[nearest[0]]}?" if nearest else ""
                raise OptionError(f"unknown option {name}{hint}")
        self.mode = self._mode()
        self.with_values = self.boolean("values", True)
        self.with_headers = self.boolean("includeHeaders", True)
        self.batch_rows = self.integer("batchRows", DEFAULT_BATCH_ROWS, least=1)

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def required(self, name: str) -> str:
        """Return an option that has no default. Raises OptionError."""
        value = self.get(name)
        if not value:
            raise OptionError(f"option {name} is missing")
        return value

    def integer(self, name: str, default: int, *, least: int | None = None) -> int:
        """Return an option as a whole number. Raises OptionError."""
        return parse_int(name, self[name], least=least) if name in self else default

    def optional_integer(self, name: str, *, least: int | None = None) -> int | None:
        """Return an option as a whole number, or None if the option is missing. Raises OptionError."""
        return parse_int(name, self[name], least=least) if name in self else None

    def boolean(self, name: str, default: bool) -> bool:
        """Return an option as a bool. Raises OptionError."""
        return parse_bool(name, self[name]) if name in self else default

    def arrow_schema(self) -> pa.Schema:
        """Return the Arrow schema for these options."""
        return arrow_schema(self.mode, with_values=self.with_values, with_headers=self.with_headers)

    def spark_schema(self) -> str:
        """Return the schema for these options as a DDL string for Spark."""
        return spark_schema(self.mode, with_values=self.with_values, with_headers=self.with_headers)

    @property
    def is_read_committed(self) -> bool:
        """The value of `kafka.isolation.level`. Raises OptionError."""
        level = self.get("kafka.isolation.level", "read_uncommitted")
        if level not in ("read_committed", "read_uncommitted"):
            raise OptionError(f"kafka.isolation.level must be read_committed or read_uncommitted, not {level!r}")
        return level == "read_committed"

    def _mode(self) -> Mode:
        text = self.get("mode", "records").lower()
        if text not in list(Mode):
            raise OptionError(f"mode must be one of {', '.join(Mode)}, not {text!r}")
        return Mode(text)


def names_of(text: str) -> list[str]:
    """Return the names in a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_assign(text: str) -> dict[str, tuple[int, ...]]:
    """Return the partitions by topic from the JSON of the connector's option `assign`. Raises OptionError."""
    try:
        parsed = json.loads(text)
        chosen = {topic: tuple(sorted(set(numbers))) for topic, numbers in parsed.items()}
    except (ValueError, TypeError, AttributeError):
        chosen = {}
    if not chosen or any(type(number) is not int for numbers in chosen.values() for number in numbers):
        raise OptionError(f'assign must be like {{"topic": [0, 1]}}, not {text!r}')
    return chosen
