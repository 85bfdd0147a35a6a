"""Declarations of broker keys as class attributes: ``num_partitions = integer(1, "Partitions of ...", least=1)``.

For a type checker such an attribute is its value; the class holds a :class:`Declaration`, from which ``BrokerConfig``
creates the :class:`~.keys.Key` and its own plain default. So one line defines type, default, range, sentence and help,
and reading ``config.num_partitions`` costs no more than any attribute.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from ...security.password import Password
from .keys import ConfigType, ConfigValue, Key, Update

PER_BROKER: Final = Update.PER_BROKER
CLUSTER_WIDE: Final = Update.CLUSTER_WIDE

_V = TypeVar("_V", bound=ConfigValue)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A declaration of a key without its name, which is the attribute's."""

    type: ConfigType
    default: ConfigValue
    sentence: str
    more: dict[str, Any]

    def named(self, attribute: str) -> Key:
        """Return the key: underscores of the attribute become dots, as no supported key has an underscore."""
        return Key(attribute.replace("_", "."), self.type, self.default, self.sentence, **self.more)


def boolean(default: bool, sentence: str, **more: Any) -> bool:
    """Declare a BOOLEAN key."""
    return _declared(ConfigType.BOOLEAN, default, sentence, more)


def short(default: int, sentence: str, **more: Any) -> int:
    """Declare a SHORT key, 16 bits."""
    return _declared(ConfigType.SHORT, default, sentence, more)


def integer(default: int, sentence: str, **more: Any) -> int:
    """Declare an INT key, 32 bits."""
    return _declared(ConfigType.INT, default, sentence, more)


def optional_integer(sentence: str, **more: Any) -> int | None:
    """Declare an INT key, 32 bits, without a default."""
    return _declared(ConfigType.INT, None, sentence, more)


def long(default: int, sentence: str, **more: Any) -> int:
    """Declare a LONG key, 64 bits."""
    return _declared(ConfigType.LONG, default, sentence, more)


def optional_long(sentence: str, **more: Any) -> int | None:
    """Declare a LONG key, 64 bits, without a default."""
    return _declared(ConfigType.LONG, None, sentence, more)


def double(default: float, sentence: str, **more: Any) -> float:
    """Declare a DOUBLE key."""
    return _declared(ConfigType.DOUBLE, default, sentence, more)


def string(default: str, sentence: str, **more: Any) -> str:
    """Declare a STRING key."""
    return _declared(ConfigType.STRING, default, sentence, more)


def optional_string(sentence: str, **more: Any) -> str | None:
    """Declare a STRING key without a default."""
    return _declared(ConfigType.STRING, None, sentence, more)


def optional_class(sentence: str, **more: Any) -> str | None:
    """Declare a CLASS key without a default."""
    return _declared(ConfigType.CLASS, None, sentence, more)


def password(sentence: str, **more: Any) -> Password | None:
    """Declare a PASSWORD key, whose value is never shown."""
    return _declared(ConfigType.PASSWORD, None, sentence, more)


def optional_words(sentence: str, **more: Any) -> tuple[str, ...] | None:
    """Declare a LIST key without a default."""
    return _declared(ConfigType.LIST, None, sentence, more)


def words(default: tuple[str, ...], sentence: str, **more: Any) -> tuple[str, ...]:
    """Declare a LIST key: words separated by commas."""
    return _declared(ConfigType.LIST, default, sentence, more)


def pieces(default: tuple[str, ...], sentence: str, **more: Any) -> tuple[str, ...]:
    """Declare a STRING key that is a list, although Kafka does not give it the type LIST."""
    return _declared(ConfigType.STRING, default, sentence, {**more, "is_list": True})


def _declared(type_: ConfigType, default: _V, sentence: str, more: dict[str, Any]) -> _V:
    return cast(_V, Declaration(type_, default, sentence, more))
