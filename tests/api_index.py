"""The index of APIs: the schema file, handler and tests of each row of the table, printed by ``make index``."""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from dataclasses import astuple, dataclass, fields
from functools import cache
from pathlib import Path

from gregor.broker.api.contract import Api, always
from gregor.broker.api.table import APIS
from gregor.protocol.apis import request_class

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
MOST_TESTS = 2


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A line of the index; paths are relative to the root of the checkout."""

    key: int
    api: str
    versions: str
    kafka_4: str
    answered_by: str
    schema: str
    handler: str
    tests: str


def entry_of(api: Api) -> IndexEntry:
    """Return the line for a row of the table of APIs."""
    request = request_class(api.key)
    handler = inspect.unwrap(api.handler)
    first_line = handler.__code__.co_firstlineno
    return IndexEntry(
        key=int(api.key),
        api=api.key.name,
        versions=f"{api.min_version}-{api.max_version_with_transactions_v2 or api.max_version}",
        kafka_4=f"{api.kafka_4_floor}+",
        answered_by=answered_by(api),
        schema=source_of(request),
        handler=f"{source_of(handler)}:{first_line}",
        tests=" ".join(tests_of(request.__name__, handler.__name__)[:MOST_TESTS]),
    )


def answered_by(api: Api) -> str:
    """Return which brokers answer: any, the controller, or the controller for some requests."""
    if api.is_for_controller is None:
        return "any broker"
    return "controller" if api.is_for_controller is always else "controller or any"


def source_of(item: object) -> str:
    """Return the file of a class or function."""
    return str(Path(inspect.getfile(item)).relative_to(ROOT))  # type: ignore[arg-type]


def tests_of(*words: str) -> list[str]:
    """Return the files with tests that name a request class or handler: the broker's first, then by mentions."""
    mentions = {name: sum(counts[word] for word in words) for name, counts in words_of_tests().items()}
    named = [name for name, count in mentions.items() if count]
    return sorted(named, key=lambda name: (not name.startswith("tests/broker/"), -mentions[name], name))


@cache
def words_of_tests() -> dict[str, Counter[str]]:
    """Return how often each file of tests, or of shared code of tests, contains each word."""
    return {
        str(path.relative_to(ROOT)): Counter(re.findall(r"\w+", path.read_text()))
        for path in sorted(TESTS.rglob("*.py"))
    }


def print_index() -> None:
    """Print the index as aligned columns."""
    rows = [tuple(field.name.upper() for field in fields(IndexEntry))]
    rows += [tuple(map(str, astuple(entry_of(api)))) for api in APIS.values()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")


if __name__ == "__main__":
    print_index()
