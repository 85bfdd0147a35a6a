"""Error codes, API keys and versions beside those of Apache Kafka."""

from __future__ import annotations

import json
from pathlib import Path

from gregor.protocol.apis import ApiKey, is_flexible, valid_versions
from gregor.protocol.errors import ErrorCode


def test_error_codes_equal_those_of_kafka(shared: Path) -> None:
    errors = json.loads((shared / "protocol" / "errors.json").read_text())
    assert {(code.name, code.value, code.retriable) for code in ErrorCode} == {
        (error["name"], error["code"], error["retriable"]) for error in errors
    }


def test_every_api_and_version_of_kafka_3_9_is_declared(shared: Path) -> None:
    messages = json.loads((shared / "protocol" / "messages-3.9.json").read_text())["apis"]
    apis = {api["key"]: api["3.9"] for api in json.loads((shared / "protocol" / "apis.json").read_text()) if api["3.9"]}
    assert {name.lower() for name in messages} == {key.name.replace("_", "").lower() for key in ApiKey}
    for message in messages.values():
        key, kafka = ApiKey(message["api_key"]), apis[message["api_key"]]
        first, last = valid_versions(key)
        assert first == kafka["min"]
        assert last >= kafka["max"]
        flexible = [version for version in range(last + 1) if is_flexible(key, version)]
        assert (flexible[0] if flexible else -1) == kafka["first_flexible"]
