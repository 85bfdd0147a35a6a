"""Configuration keys: type, range, sentence and update mode of a key, and the conversion of text to its value.

Kafka's ``ConfigDef`` is the model: names, types, ranges and the wording of refusals are Kafka's, so that an operator
who knows Kafka recognizes Gregor's messages.
"""

import enum
import math
import re
from dataclasses import dataclass
from typing import Final

from ...security.password import Password

_TYPE_LIMITS: Final = {
    "SHORT": (-(1 << 15), (1 << 15) - 1),
    "INT": (-(1 << 31), (1 << 31) - 1),
    "LONG": (-(1 << 63), (1 << 63) - 1),
}

ConfigValue = bool | int | float | str | Password | tuple[str, ...] | None


class ConfigError(ValueError):
    """An error for an invalid configuration; its text is one line that says what to change."""


class ConfigType(enum.IntEnum):
    """A type of a key, numbered as in DescribeConfigsResponse (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(enum.Enum):
    """An update mode of a broker key (KIP-226): at start only, for one broker, or for the whole cluster."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True)
class Key:
    """A configuration key.

    ``least`` and ``most`` are inclusive bounds of numbers, ``or_equal`` is allowed as well; ``one_of`` lists the valid
    strings, or elements of a list; the whole text must match ``pattern``, or is refused with the message ``otherwise``.
    ``is_list`` marks STRING keys that Kafka itself splits at commas. ``internal`` keys are Kafka's internal ones: Kafka
    accepts them and does not list them.
    """

    name: str
    type: ConfigType
    default: ConfigValue
    sentence: str
    least: float | None = None
    most: float | None = None
    or_equal: float | None = None
    one_of: tuple[str, ...] = ()
    pattern: str = ""
    otherwise: str = ""
    update: Update = Update.READ_ONLY
    internal: bool = False
    is_list: bool = False

    @property
    def attribute(self) -> str:
        """The name of the attribute that holds this key's value."""
        return self.name.replace(".", "_")

    @property
    def sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def valid_values(self) -> str:
        """The range in words, empty if any value of the type is valid."""
        if self.one_of:
            return "one of " + ", ".join(self.one_of)
        if self.least is not None and self.most is not None:
            also = "" if self.or_equal is None else f" or {_plain(self.or_equal)}"
            return f"{_plain(self.least)} to {_plain(self.most)}{also}"
        if self.least is not None:
            return f"at least {_plain(self.least)}"
        return ""

    def parse(self, text: str) -> ConfigValue:
        """Return the value of ``text``.

        Raises :class:`ConfigError` with the message of Kafka's ConfigException for an invalid text.
        """
        trimmed = text.strip()
        if self.pattern and not re.fullmatch(self.pattern, trimmed):
            shown = f"[{trimmed}]" if self.type is ConfigType.LIST else trimmed
            raise self._refusal(shown, self.otherwise.format(trimmed))
        match self.type:
            case ConfigType.BOOLEAN:
                value: ConfigValue = self._boolean(trimmed)
            case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
                value = self._integer(trimmed)
            case ConfigType.DOUBLE:
                value = self._double(trimmed)
            case ConfigType.STRING if not self.is_list:
                value = trimmed
            case ConfigType.CLASS:
                value = trimmed
            case ConfigType.PASSWORD:
                value = Password(trimmed)
            case _:
                value = tuple(part.strip() for part in trimmed.split(",")) if trimmed else ()
        self._check(value)
        return value

    def render(self, value: ConfigValue) -> str | None:
        """Return ``value`` as text for :meth:`parse`, ``None`` if there is no value."""
        if value is None or (value == () and self.is_list):
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, Password):
            return value.value
        if isinstance(value, float):
            return repr(value).replace("e+", "E")
        return str(value)

    def _boolean(self, text: str) -> bool:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise self._refusal(text, "Expected value to be either true or false")
        return lowered == "true"

    def _integer(self, text: str) -> int:
        lowest, highest = _TYPE_LIMITS[self.type.name]
        # int() alone would accept underscores and other scripts' digits, which Java's parser refuses.
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 20 or not lowest <= int(text) <= highest:
            raise self._refusal(text, f"Not a number of type {self.type.name}")
        return int(text)

    def _double(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isnan(value) or "_" in text:
            raise self._refusal(text, "Not a number of type DOUBLE")
        return value

    def _check(self, value: ConfigValue) -> None:
        if isinstance(value, str | tuple):
            self._check_words((value,) if isinstance(value, str) else value)
        elif isinstance(value, int | float) and not isinstance(value, bool) and value != self.or_equal:
            self._check_range(value)

    def _check_words(self, values: tuple[str, ...]) -> None:
        for value in values:
            if self.one_of and value not in self.one_of:
                raise self._refusal(value, f"String must be one of: {', '.join(self.one_of)}")

    def _check_range(self, value: float) -> None:
        too_small = self.least is not None and value < self.least
        too_large = self.most is not None and value > self.most
        if (too_small or too_large) and self.or_equal is not None and self.least is not None and self.most is not None:
            bounds = f"{_plain(self.least)} and {_plain(self.most)}"
            raise self._refusal(value, f"Value must be between {bounds} or equal to {_plain(self.or_equal)}")
        if too_small and self.least is not None:
            raise self._refusal(value, f"Value must be at least {_plain(self.least)}")
        if too_large and self.most is not None:
            raise self._refusal(value, f"Value must be no more than {_plain(self.most)}")

    def _refusal(self, value: object, reason: str) -> ConfigError:
        return ConfigError(f"Invalid value {value} for configuration {self.name}: {reason}")


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)
