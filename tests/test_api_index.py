"""Each API has a schema file, a handler and a test, in the places that CONTRIBUTING.md names."""

from __future__ import annotations

import pytest

from gregor.broker.api.contract import Api
from gregor.broker.api.table import APIS
from tests.api_index import entry_of, print_index


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key.name)
def test_each_api_has_a_schema_a_handler_and_a_test(api: Api) -> None:
    entry = entry_of(api)
    assert entry.schema == f"protocol/messages/{api.key.name.lower()}.py"
    assert entry.handler.startswith("broker/api/handlers/")
    assert entry.tests.startswith("tests/")


def test_the_index_has_a_line_for_each_api(capsys: pytest.CaptureFixture[str]) -> None:
    print_index()
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.split()[:3] == ["KEY", "API", "VERSIONS"]
    assert [int(line.split()[0]) for line in lines] == [int(api.key) for api in APIS.values()]
