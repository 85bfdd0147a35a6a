"""The error codes in a response, at its top level and in its entries (Kafka ``AbstractResponse.errorCounts``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import repeat

from .field_meanings import field_meanings, fields_of
from .schema import EncodedStruct, Entity, Struct


@dataclass(frozen=True, slots=True)
class _Places:
    """The fields of a structure that have error codes, themselves or in structures inside."""

    codes: tuple[str, ...]
    structures: tuple[tuple[str, bool], ...]
    """Each field that has a structure or, with True, a list of structures."""


def errors_in(response: Struct) -> Iterator[int]:
    """Yield each error code of a response, 0 for those fields and entries that report success."""
    places = _places(type(response))
    for name in places.codes:
        yield getattr(response, name)
    for name, is_list in places.structures:
        value = getattr(response, name)
        for inside in (value or ()) if is_list else (value,):
            if isinstance(inside, EncodedStruct):
                yield from repeat(0, inside.success_count)
            elif inside is not None:
                yield from errors_in(inside)


@cache
def _places(cls: type[Struct]) -> _Places:
    structures = [
        (name, meaning.is_list)
        for name, meaning in field_meanings(cls).items()
        if meaning.structure is not None and _has_codes(meaning.structure)
    ]
    return _Places(fields_of(cls, Entity.ERROR_CODE), tuple(structures))


def _has_codes(cls: type[Struct]) -> bool:
    places = _places(cls)
    return bool(places.codes or places.structures)
