"""What a configuration key is: type, range, sentence, when it may change; and how text becomes its value.

Kafka's ``ConfigDef`` is the model: names, types, ranges and the wording of a refusal are its own, so that an operator
who knows Kafka reads our messages at once.
"""

import enum
import math
from dataclasses import dataclass
from typing import Final

_TYPE_LIMITS: Final = {
    "SHORT": (-(1 << 15), (1 << 15) - 1),
    "INT": (-(1 << 31), (1 << 31) - 1),
    "LONG": (-(1 << 63), (1 << 63) - 1),
}

ConfigValue = bool | int | float | str | tuple[str, ...] | None


class ConfigError(ValueError):
    """A configuration that cannot be used; its text is one line that says what to change."""


class ConfigType(enum.IntEnum):
    """Type of a key, numbered as in DescribeConfigsResponse (KIP-569)."""

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
    """When a broker key may change (KIP-226): at start only, for one broker, or for the whole cluster at once."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key.

    ``least`` and ``most`` bound numbers inclusively; ``one_of`` bounds strings, or each element of a list. ``internal``
    keys are Kafka's own secrets: it takes them and does not list them.
    """

    name: str
    type: ConfigType
    default: ConfigValue
    sentence: str
    least: float | None = None
    most: float | None = None
    one_of: tuple[str, ...] = ()
    update: Update = Update.READ_ONLY
    internal: bool = False

    @property
    def attribute(self) -> str:
        """Name of the attribute that holds this key's value."""
        return self.name.replace(".", "_")

    @property
    def sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def valid_values(self) -> str:
        """The range in words, empty where anything of the type will do."""
        if self.one_of:
            return "one of " + ", ".join(self.one_of)
        if self.least is not None and self.most is not None:
            return f"{_plain(self.least)} to {_plain(self.most)}"
        if self.least is not None:
            return f"at least {_plain(self.least)}"
        return ""

    def parse(self, text: str) -> ConfigValue:
        """The value that ``text`` stands for.

        Raises :class:`ConfigError` in the words of Kafka's ConfigException where it has none.
        """
        trimmed = text.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                value: ConfigValue = self._boolean(trimmed)
            case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
                value = self._integer(trimmed)
            case ConfigType.DOUBLE:
                value = self._double(trimmed)
            case ConfigType.LIST:
                value = tuple(part.strip() for part in trimmed.split(",")) if trimmed else ()
            case _:
                value = trimmed
        self._check(value)
        return value

    def render(self, value: ConfigValue) -> str | None:
        """``value`` as text that :meth:`parse` takes, ``None`` where there is no value."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
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
        # int() alone would take underscores and other scripts' digits, which Java's parser refuses.
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
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.least is not None and value < self.least:
                raise self._refusal(value, f"Value must be at least {_plain(self.least)}")
            if self.most is not None and value > self.most:
                raise self._refusal(value, f"Value must be no more than {_plain(self.most)}")
        elif self.one_of and isinstance(value, str) and value not in self.one_of:
            raise self._refusal(value, f"String must be one of: {', '.join(self.one_of)}")
        elif self.one_of and isinstance(value, tuple):
            for element in value:
                if element not in self.one_of:
                    raise self._refusal(element, f"String must be one of: {', '.join(self.one_of)}")

    def _refusal(self, value: object, reason: str) -> ConfigError:
        return ConfigError(f"Invalid value {value} for configuration {self.name}: {reason}")


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)
