"""The control port as a program in another language uses it: JSON over HTTP, and nothing of Gregor's Python."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gregor.client.consumer.consumer import Consumer
from gregor.command_line.ephemeral import PREFIX
from tests.command_line.test_brokers_of_tests import served
from tests.command_line.test_client_tools import run
from tests.free_ports import free_address
from tests.waiting import PATIENCE_S

Answer = tuple[int, dict[str, Any]]


class ControlPort:
    """A client of a control port."""

    def __init__(self, address: str, facts: dict[str, Any], process: subprocess.Popen[bytes]) -> None:
        self.address = address
        self.facts = facts
        self.process = process

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """Send a request, with a body of JSON or of bytes, and return status and JSON of the answer."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPort]:
    words = ("--override", "gregor.control.listeners=http://:0", "--override", "gregor.fault.injection.enable=true")
    more = ("--override", "gregor.control.max.states=2", "--override", "group.initial.rebalance.delay.ms=0")
    with served(tmp_path_factory.mktemp("control"), "--ephemeral", *words, *more) as (facts, process):
        (address,) = facts["control"]
        yield ControlPort(address, facts, process)


@pytest.fixture(autouse=True)
def _nothing_there(port: ControlPort) -> None:
    assert port.ask("POST", "/v1/reset")[0] == 200


async def values(port: ControlPort, topic: str) -> list[bytes | None]:
    async with Consumer(port.facts["bootstrap_servers"], auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        return [record.value for record in await consumer.poll()]


def test_the_control_port_tells_the_address_of_the_broker(port: ControlPort) -> None:
    status, facts = port.ask("GET", "/v1/broker")
    assert (status, facts) == (200, {key: value for key, value in port.facts.items() if key != "control"})
    assert socket.gethostbyname(port.address.removeprefix("http://").partition(":")[0]) == "127.0.0.1"


async def test_topics_and_records_are_created_through_the_control_port(port: ControlPort) -> None:
    topic = {"name": "orders", "partitions": 3, "configs": {"retention.ms": -1}}
    assert port.ask("POST", "/v1/topics", topic) == (201, {"name": "orders"})
    assert port.ask("POST", "/v1/topics", topic)[0] == 409
    lines = b'{"topic": "orders", "partition": 0, "value": "a"}\n\n{"partition": 0, "value": {"b": 1}}\n'
    assert port.ask("POST", "/v1/records?topic=orders", lines) == (200, {"records": 2})
    assert await values(port, "orders") == [b"a", b'{"b":1}']
    assert port.ask("GET", "/v1/topics") == (200, {"orders": 3})
    assert port.ask("DELETE", "/v1/topics/orders") == (200, {})
    assert port.ask("DELETE", "/v1/topics/orders")[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("POST", "/v1/topics", {"name": 7}, 400, "name is not a text"),
        ("POST", "/v1/topics", {"partitions": 7}, 400, "the topic's name is missing"),
        ("POST", "/v1/topics", {"name": "t", "partition": 7}, 400, "unknown field 'partition'"),
        ("POST", "/v1/topics", {"name": "t", "configs": {"retention": 1}}, 400, "INVALID_CONFIG"),
        ("POST", "/v1/topics", [], 400, "not a JSON object"),
        ("POST", "/v1/topics", b"{", 400, "not JSON"),
        ("POST", "/v1/topics", b"[" * 100_000, 400, "not JSON"),
        ("POST", "/v1/records", b'{"value": "v"}', 400, "line 1: the topic is missing"),
        ("POST", "/v1/records", b'\n{"topic": "t"}', 400, "line 2: write a record as"),
        ("POST", "/v1/records", b"[" * 100_000, 400, "line 1: "),
        ("PUT", "/v1/faults/slow", b"api=Produc stall", 400, "did you mean Produce"),
        ("PUT", "/v1/faults/a%20b", b"api=Produce stall", 400, "a rule's name"),
        ("DELETE", "/v1/faults/none", None, 404, "there is no rule 'none'"),
        ("PUT", "/v1/clock", {"offset_ms": "1h"}, 400, "not of the form"),
        ("PUT", "/v1/states/a%2Fb", None, 400, "a state's name"),
        ("POST", "/v1/states/..%2Fx/load", None, 400, "a state's name"),
        ("GET", "/v1/states/none", None, 404, "there is no state"),
        ("DELETE", "/v1/states/none", None, 404, "there is no state"),
        ("GET", "/v1/everything", None, 404, "there are: GET /v1/broker"),
        ("PATCH", "/v1/states/none", None, 404, "there are: GET /v1/broker"),
    ],
)
def test_invalid_requests_to_the_control_port_are_refused(
    port: ControlPort, method: str, path: str, body: object, status: int, text: str
) -> None:
    answer = port.ask(method, path, body)
    assert answer[0] == status
    assert text in answer[1]["error"]


def test_fault_rules_and_the_clock_offset_are_set_and_cleared(port: ControlPort) -> None:
    assert port.ask("PUT", "/v1/faults/slow", b"api=Produce delay=20ms") == (200, {})
    assert port.ask("PUT", "/v1/faults/lost", {"api": "Fetch", "disconnect": True}) == (200, {})
    assert port.ask("PUT", "/v1/clock", {"offset_ms": -3_600_000}) == (200, {})
    assert port.ask("GET", "/v1/faults")[1].keys() == {"slow", "lost"}
    assert port.ask("DELETE", "/v1/faults/lost") == (200, {"cleared": ["lost"]})
    assert port.ask("DELETE", "/v1/faults") == (200, {"cleared": ["clock", "slow"]})
    assert port.ask("GET", "/v1/faults") == (200, {})


async def test_a_state_is_saved_and_loaded_while_the_port_stays(port: ControlPort, tmp_path: Path) -> None:
    port.ask("POST", "/v1/records", b'{"topic": "orders", "value": "saved"}')
    status, saved = port.ask("PUT", "/v1/states/seed")
    assert (status, saved["bytes"] > 0) == (201, True)
    port.ask("POST", "/v1/records", b'{"topic": "orders", "value": "later"}')
    for _ in range(2):
        assert port.ask("POST", "/v1/states/seed/load") == (200, {})
        assert await values(port, "orders") == [b"saved"]
    assert port.ask("GET", "/v1/states") == (200, {"seed": saved})
    assert port.ask("PUT", "/v1/states/second")[0] == 201
    assert "there are 2 states" in port.ask("PUT", "/v1/states/third")[1]["error"]
    assert port.ask("PUT", "/v1/states/seed")[0] == 201, "a state of the same name is replaced"
    urllib.request.urlretrieve(f"{port.address}/v1/states/seed", tmp_path / "seed.tar")
    with tarfile.open(tmp_path / "seed.tar") as archive:
        assert "meta.properties" in archive.getnames()
    assert port.ask("DELETE", "/v1/states/seed")[0] == 200
    assert port.ask("DELETE", "/v1/states/second")[0] == 200


def test_pages_of_other_sites_are_refused(port: ControlPort) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        request = urllib.request.Request(f"{port.address}/v1/reset", b"", headers, method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=PATIENCE_S)
        assert refused.value.code in (403, 421)
        refused.value.close()


def test_faults_need_fault_injection_enabled_and_states_are_deleted_at_shutdown(tmp_path: Path) -> None:
    words = ("--dir", str(tmp_path / "data"), "--override", "gregor.control.listeners=http://127.0.0.1:0")
    with served(tmp_path, *words) as (facts, process):
        port = ControlPort(facts["control"][0], facts, process)
        refused = port.ask("PUT", "/v1/faults/slow", b"api=Produce delay=20ms")
        assert (refused[0], "gregor.fault.injection.enable=true" in refused[1]["error"]) == (400, True)
        assert port.ask("PUT", "/v1/clock", {"offset_ms": 1})[0] == 400
        assert port.ask("PUT", "/v1/states/one")[0] == 201
        assert list(tmp_path.glob(f"{PREFIX}*"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert not list(tmp_path.glob(f"{PREFIX}*"))


def test_a_control_port_in_use_is_an_error() -> None:
    host, number = free_address()
    with socket.create_server((host, number)):
        address = f"http://{host}:{number}"
        refused = run(None, "serve", "--ephemeral", "--port", "0", "--override", f"gregor.control.listeners={address}")
    assert refused.code == 1
    assert refused.err.startswith(f"gregor: cannot listen on HTTP://{host}:{number}")
