"""Protobuf schemas of a registry, compiled by protoc, and their messages. Source: Protobuf, "Language Guide"."""

from __future__ import annotations

import base64
import importlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import RegistryError
from .registry import RegisteredSchema

FILE = "gregor_registered_schema.proto"
COMPILER_LIMIT_S = 60.0
LONGEST_COMPLAINT = 300
_COMPLAINT = re.compile(r"\S+\.proto:")
"""The beginning of a line of protoc about a schema; its other lines are its log."""


@lru_cache(maxsize=256)
def compiled(schema: RegisteredSchema) -> Any:
    """Return the FileDescriptor of a schema. Raises RegistryError for one that protoc refuses.

    The schema is the text of a file, or a serialized FileDescriptorProto in base64, as Confluent's Python serializer
    registers it. protoc runs as a process, so that its output and its limits are its own.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool

    if (described := _descriptor_in_base64(schema)) is not None:
        pool = descriptor_pool.DescriptorPool()
        try:
            _add_with_imports(pool, described, dict(schema.references))
            return pool.FindFileByName(described.name)
        except (KeyError, TypeError) as fault:
            raise RegistryError(f"schema {schema.number} is no Protobuf schema: {fault}"[:LONGEST_COMPLAINT]) from None
    with tempfile.TemporaryDirectory(prefix="gregor-proto-") as folder:
        for name, text in _files(schema):
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        out = Path(folder, "descriptors")
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"-I{_well_known()}", "--include_imports"]
        try:
            done = subprocess.run(  # noqa: S603
                [*command, f"--descriptor_set_out={out}", FILE],
                capture_output=True,
                text=True,
                timeout=COMPILER_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as fault:
            raise RegistryError(f"schema {schema.number}: protoc failed: {fault}") from None
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if _COMPLAINT.match(line)]
            lines = [line.removeprefix(f"{folder}/") for line in lines]
            complaint = (" ".join(lines) or "protoc refuses it")[:LONGEST_COMPLAINT]
            raise RegistryError(f"schema {schema.number} is no Protobuf schema: {complaint}")
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.Add(each)
    return pool.FindFileByName(FILE)


def _descriptor_in_base64(schema: RegisteredSchema) -> Any:
    """Return the FileDescriptorProto that a schema is, None for a text."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        described = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    except (ValueError, DecodeError):
        return None
    return described if described.name else None


def _add_with_imports(pool: Any, described: Any, referred: Mapping[str, RegisteredSchema]) -> None:
    """Add a file to a pool, after those that it imports. Raises KeyError for a file that is not referred to."""
    from google.protobuf import descriptor_pb2

    for name in described.dependency:
        further: Mapping[str, RegisteredSchema] = {}
        if name in referred:
            imported, further = _descriptor_in_base64(referred[name]), dict(referred[name].references)
            if imported is None:
                imported = descriptor_pb2.FileDescriptorProto()
                compiled(referred[name]).CopyToProto(imported)
            imported.name = name
        else:
            imported = _well_known_file(name)
        _add_with_imports(pool, imported, further)
    pool.Add(described)


def _well_known_file(name: str) -> Any:
    """Return the FileDescriptorProto of a file that protobuf brings. Raises KeyError for another file."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    path = PurePosixPath(name)
    described = descriptor_pb2.FileDescriptorProto()
    try:
        if path.parent != PurePosixPath("google/protobuf"):
            raise KeyError(name)
        importlib.import_module(f"google.protobuf.{path.stem}_pb2")
        descriptor_pool.Default().FindFileByName(name).CopyToProto(described)
    except (ImportError, KeyError):
        raise KeyError(f"it imports {name}, which it does not refer to") from None
    return described


def message_at(schema: RegisteredSchema, indexes: tuple[int, ...]) -> Any:
    """Return the Descriptor of the message at these indexes. Raises RegistryError, or ValueError if there is none."""
    file = compiled(schema)
    try:
        # The file's messages by name are not in the order of the file.
        found = file.pool.FindMessageTypeByName(_full_name(file, indexes[0]))
        for index in indexes[1:]:
            found = found.nested_types[index]
    except (IndexError, KeyError):
        raise ValueError(f"schema {schema.number} has no message at {list(indexes)}") from None
    return found


def message_named(schema: RegisteredSchema, name: str) -> Any:
    """Return the Descriptor of a message by its name, with or without the package. Raises RegistryError."""
    file = compiled(schema)
    for full_name in (name, f"{file.package}.{name}"):
        try:
            return file.pool.FindMessageTypeByName(full_name)
        except KeyError:
            continue
    raise RegistryError(f"schema {schema.number} has no message {name}")


def indexes_of(descriptor: Any) -> tuple[int, ...]:
    """Return the indexes of a message in its schema, outermost first, as `message_at` takes them."""
    from google.protobuf import descriptor_pb2

    indexes: list[int] = []
    while (above := descriptor.containing_type) is not None:
        indexes.append([each.name for each in above.nested_types].index(descriptor.name))
        descriptor = above
    described = descriptor_pb2.FileDescriptorProto()
    descriptor.file.CopyToProto(described)
    indexes.append([each.name for each in described.message_type].index(descriptor.name))
    return tuple(reversed(indexes))


def _full_name(file: Any, index: int) -> str:
    from google.protobuf import descriptor_pb2

    described = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(described)
    if index < 0:
        raise IndexError(index)
    name: str = described.message_type[index].name
    return f"{file.package}.{name}" if file.package else name


def _files(schema: RegisteredSchema) -> Iterator[tuple[str, str]]:
    """Yield the file of a schema and those that it imports. Raises RegistryError for a name outside the folder."""
    yield FILE, schema.text
    pending = list(schema.references)
    while pending:
        name, imported = pending.pop()
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or name == FILE:
            raise RegistryError(f"schema {schema.number} imports {name!r}, which is no name of a file")
        yield name, imported.text
        pending += imported.references


def _well_known() -> str:
    import grpc_tools

    return str(Path(grpc_tools.__file__).parent / "_proto")
