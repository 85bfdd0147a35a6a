"""The errors in answers by API: Kafka's ErrorsPerSec, counted only while a metrics listener is open."""

from __future__ import annotations

from collections import Counter

from ...protocol.apis import AnyApiKey
from ...protocol.error_counts import errors_in
from ...protocol.errors import ErrorCode
from ...protocol.schema import Struct


class ResponseErrors:
    """The numbers of error codes in all answers of one broker; an answer has one for each entry, NONE included."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[AnyApiKey, int]] = Counter()
        """The numbers by API and error code."""

    def add(self, key: AnyApiKey, response: Struct) -> None:
        """Count the error codes of an answer."""
        for code in errors_in(response):
            self.counts[key, code] += 1

    def add_success(self, key: AnyApiKey, entry_count: int = 1) -> None:
        """Count an answer with so many entries that have error codes, none of which has an error."""
        self.counts[key, ErrorCode.NONE] += entry_count
