"""The elements of the declarations in `messages/`: wire types, versions and base classes.

A declaration reads as an ordinary keyword-only dataclass whose annotations are the schema::

    class FetchPartition(Struct):
        partition: Int32 = 0
        current_leader_epoch: Annotated[Int32, Versions("9+"), IGNORABLE] = -1
        fetch_offset: Int64 = 0

- The type gives the wire type; `X | None` may be null, `list[X]` is an array, a `Struct` is a structure in place.
- `Versions` narrows the versions that carry a field; without it, each version of the enclosing structure does.
- `Nullable` narrows the versions in which null is allowed, `Tag` makes a tagged field (KIP-482), `IGNORABLE` lets the
  encoder leave out a value that the version cannot carry, `NEVER_COMPACT` keeps the old length prefix.
- `TopicName`, `BrokerId` and the like are wire types with an `Entity`: what the value, or each value of a list, names.
  `SENDER`, `MENTIONED` and `MINUS_ONE_ON_ERROR` add to a field's meaning. `field_meanings.py` reads these marks; codecs
  ignore them.
- The value after `=` is Kafka's default. A default list or structure is created for each message.

Nothing is compiled when a message module is imported: `__init__` is compiled when the first message is constructed, the
codec (`codec.py`) when the first one is read or written. A broker loads some 400 such classes at its start.
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, ClassVar, Final, Protocol, TypeAlias, dataclass_transform
from uuid import UUID


class VersionRange:
    """An inclusive range of versions, parsed from Kafka's notation: `3`, `0-4`, `7+` or `none`."""

    __slots__ = ("first", "last")

    UNBOUNDED: Final = 0x7FFF

    def __init__(self, text: str) -> None:
        self.first: int
        self.last: int
        if text == "none":
            self.first, self.last = 0, -1
        elif text.endswith("+"):
            self.first, self.last = int(text[:-1]), self.UNBOUNDED
        else:
            first, _, last = text.partition("-")
            self.first, self.last = int(first), int(last or first)

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.first}..{self.last})"


class Versions(VersionRange):
    """The versions that carry a field."""


class Nullable(VersionRange):
    """The versions in which a field declared `X | None` may be null on the wire."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A tagged field (KIP-482): absent from the wire while it has its default."""

    number: int


@dataclass(frozen=True, slots=True)
class Ignorable:
    """A field whose value is dropped silently if a version cannot carry it; for other fields that is an error."""


@dataclass(frozen=True, slots=True)
class NeverCompact:
    """A field that keeps its int16 or int32 length prefix in flexible versions."""


class Entity(Enum):
    """A meaning of a field that code of all APIs looks for; the name is Kafka's ``entityType`` where Kafka has one."""

    BROKER_ID = "brokerId"
    GROUP_ID = "groupId"
    PRODUCER_ID = "producerId"
    TOPIC_NAME = "topicName"
    TRANSACTIONAL_ID = "transactionalId"
    CLIENT_QUOTA_ENTITY = "gregor.clientQuotaEntity"
    COORDINATOR_KEY = "gregor.coordinatorKey"
    ERROR_CODE = "gregor.errorCode"
    PARTITION_INDEX = "gregor.partitionIndex"
    RESOURCE_NAME = "gregor.resourceName"
    RESOURCE_TYPE = "gregor.resourceType"
    SCRAM_USER_NAME = "gregor.scramUserName"
    TOPIC_ID = "gregor.topicId"


@dataclass(frozen=True, slots=True)
class Sender:
    """The id of the broker that sends the request."""


@dataclass(frozen=True, slots=True)
class MinusOneOnError:
    """The number is -1 beside an error code, whatever its default."""


@dataclass(frozen=True, slots=True)
class Mentioned:
    """Topics or partitions that a request only mentions: forgotten, subscribed to or to be created."""


IGNORABLE: Final = Ignorable()
NEVER_COMPACT: Final = NeverCompact()
SENDER: Final = Sender()
MINUS_ONE_ON_ERROR: Final = MinusOneOnError()
MENTIONED: Final = Mentioned()
CLIENT_QUOTA_ENTITY: Final = Entity.CLIENT_QUOTA_ENTITY


@dataclass(frozen=True, slots=True)
class FixedSize:
    """A wire type of constant width; `code` is its letter in the `struct` module."""

    code: str


@dataclass(frozen=True, slots=True)
class LengthPrefixed:
    """A wire type that begins with its length; `kind` is `string`, `bytes` or `records`."""

    kind: str


class Part(Protocol):
    """Bytes that are not in memory yet, such as a slice of a file; `encode_parts` returns them as they are."""

    @property
    def size(self) -> int:
        """Return the number of bytes on the wire, known before the first byte is sent."""


NO_UUID: Final = UUID(int=0)

Bool: TypeAlias = Annotated[bool, FixedSize("?")]
Int8: TypeAlias = Annotated[int, FixedSize("b")]
Int16: TypeAlias = Annotated[int, FixedSize("h")]
Uint16: TypeAlias = Annotated[int, FixedSize("H")]
Int32: TypeAlias = Annotated[int, FixedSize("i")]
Int64: TypeAlias = Annotated[int, FixedSize("q")]
Float64: TypeAlias = Annotated[float, FixedSize("d")]
Uuid: TypeAlias = Annotated[UUID, FixedSize("16s")]
String: TypeAlias = Annotated[str, LengthPrefixed("string")]
Bytes: TypeAlias = Annotated[bytes, LengthPrefixed("bytes")]
Records: TypeAlias = Annotated[memoryview | bytes, LengthPrefixed("records")]
RecordsPart: TypeAlias = Annotated[memoryview | bytes | Part, LengthPrefixed("records")]

BrokerId: TypeAlias = Annotated[Int32, Entity.BROKER_ID]
CoordinatorKey: TypeAlias = Annotated[String, Entity.COORDINATOR_KEY]
ErrorCodeNumber: TypeAlias = Annotated[Int16, Entity.ERROR_CODE]
GroupId: TypeAlias = Annotated[String, Entity.GROUP_ID]
PartitionIndex: TypeAlias = Annotated[Int32, Entity.PARTITION_INDEX]
ProducerId: TypeAlias = Annotated[Int64, Entity.PRODUCER_ID]
ResourceName: TypeAlias = Annotated[String, Entity.RESOURCE_NAME]
ResourceType: TypeAlias = Annotated[Int8, Entity.RESOURCE_TYPE]
ScramUserName: TypeAlias = Annotated[String, Entity.SCRAM_USER_NAME]
TopicId: TypeAlias = Annotated[Uuid, Entity.TOPIC_ID]
TopicName: TypeAlias = Annotated[String, Entity.TOPIC_NAME]
TransactionalId: TypeAlias = Annotated[String, Entity.TRANSACTIONAL_ID]


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """A metaclass that makes slotted classes of annotated class bodies without generating code at import."""

    FIELD_DEFAULTS: dict[str, Any]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> StructType:
        names = [field for field in namespace.get("__annotations__", ()) if not field.isupper()]
        defaults = {field: namespace.pop(field) for field in names}
        namespace["__slots__"] = tuple(names)
        cls = super().__new__(mcs, name, bases, namespace, **options)
        cls.FIELD_DEFAULTS = defaults
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, namespace)


class Struct(metaclass=StructType):
    """A structure inside a message. Attributes are Kafka's field names in snake_case, all with defaults."""

    FIELD_DEFAULTS: ClassVar[dict[str, Any]]

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        cls.__init__ = _compile_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.FIELD_DEFAULTS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.FIELD_DEFAULTS)
        return f"{type(self).__name__}({values})"


class EncodedStruct:
    """A structure in a list of a response that is already encoded for the version of the response (`encode_struct`).

    It has no fields to read, except that each of its `success_count` error codes is NONE.
    """

    __slots__ = ("data", "success_count")

    def __init__(self, data: bytes, success_count: int) -> None:
        self.data = data
        self.success_count = success_count


class Message(Struct):
    """A whole message: a request, a response, a header or a record's key or value.

    `VERSIONS` are the versions that can be read and written, `FLEXIBLE` those with compact lengths and tagged fields.
    """

    VERSIONS: ClassVar[VersionRange]
    FLEXIBLE: ClassVar[VersionRange]

    def __init_subclass__(cls, *, versions: str, flexible: str = "none") -> None:
        cls.VERSIONS = VersionRange(versions)
        cls.FLEXIBLE = VersionRange(flexible)


_NOT_GIVEN: Final = object()


def _compile_init(cls: StructType) -> Any:
    """Compile a keyword-only `__init__` for the class, with new lists and structures as defaults."""
    parameters, body = [], []
    scope: dict[str, Any] = {"_not_given": _NOT_GIVEN}
    for name, default in cls.FIELD_DEFAULTS.items():
        fresh = "[]" if isinstance(default, list) else f"_{name}_type()" if isinstance(default, Struct) else None
        scope[f"_{name}_type"], scope[f"_{name}"] = type(default), default
        parameters.append(f"{name}=_not_given" if fresh else f"{name}=_{name}")
        body.append(
            f"    self.{name} = {fresh} if {name} is _not_given else {name}" if fresh else f"    self.{name} = {name}"
        )
    signature = ", ".join(["self", "*", *parameters] if parameters else ["self"])
    source = "\n".join([f"def __init__({signature}):", *(body or ["    pass"])])
    filename = f"<init {cls.__qualname__}>"
    exec(compile(source, filename, "exec"), scope)  # noqa: S102 - built from declarations, never from input
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return scope["__init__"]
