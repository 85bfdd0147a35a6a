"""Values of Confluent's own serializers are decoded, and ours by Confluent's own deserializers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("grpc_tools", reason="schemas of a registry need gregor-broker[registry]")
pytest.importorskip("jsonschema", reason="schemas of a registry need gregor-broker[registry]")

import pyarrow as pa

from gregor.pipeline.archive.description import Values
from gregor.pipeline.archive.value_formats import RegisteredValues, ValueFormat
from gregor.pipeline.values.encoder import encoder_of
from gregor.pipeline.values.registry_settings import RegistrySettings
from tests.pipeline.schema_registry import SchemaRegistry, running_registry
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.peer

PROGRAM = Path(__file__).with_name("confluent_values.py")
KINDS = {"avro": Values.AVRO, "json": Values.JSON_SCHEMA, "protobuf": Values.PROTOBUF}
ORDER = {"id": 7, "note": "x"}


@pytest.fixture(scope="module")
def confluent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a directory with confluent-kafka and what its serializers need."""
    site = tmp_path_factory.mktemp("confluent")
    wanted = "confluent-kafka[avro,json,protobuf,schemaregistry]"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(site), wanted]
    installed = subprocess.run(install, capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False)
    if installed.returncode:
        pytest.skip(f"confluent-kafka cannot be installed here: {installed.stderr.strip()[-300:]}")
    return site


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    """Provide an empty registry."""
    with running_registry() as server:
        yield server


def run(confluent: Path, registry: SchemaRegistry, action: str, given: str = "") -> dict[str, str]:
    """Run the program with Confluent's libraries; return the word behind each kind."""
    command = [sys.executable, str(PROGRAM), registry.url, action]
    done = subprocess.run(
        command,
        input=given,
        env={**os.environ, "PYTHONPATH": str(confluent)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {kind: text for kind, _, text in (line.partition(" ") for line in done.stdout.splitlines())}


def registered(registry: SchemaRegistry, kind: str) -> RegisteredValues:
    settings = RegistrySettings.from_properties({"schema.registry.url": registry.url})
    return RegisteredValues.of_subject(settings, f"{kind}-value", "shop.Order" if kind == "protobuf" else None)


def test_values_pass_between_confluents_serializers_and_ours(confluent: Path, registry: SchemaRegistry) -> None:
    """Confluent's Protobuf serializer registers a descriptor in base64, not the text of a file."""
    written = run(confluent, registry, "write")
    assert written.keys() == KINDS.keys()
    ours = ""
    for kind, text in written.items():
        values = registered(registry, kind)
        column, reasons = (
            ValueFormat.from_registry(KINDS[kind], values).decoder().decode(pa.array([bytes.fromhex(text)]))
        )
        assert (column.to_pylist(), reasons) == ([ORDER], {})
        ours += f"{kind} {encoder_of(values.reader, values.message)(ORDER).hex()}\n"
    read = run(confluent, registry, "read", ours)
    assert {kind: json.loads(text) for kind, text in read.items()} == dict.fromkeys(KINDS, ORDER)
