"""Every command and job that connects takes security from its options file, and refuses wrong keys by their names."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from gregor.command_line import COMMANDS, main
from gregor.pipeline.jobs.table import JOBS
from tests.certificates import as_pem, authority, written

TLS_ALERT = bytes.fromhex("15 03 03 00 02 02 28")
"""A fatal alert, handshake_failure: a client that speaks TLS gives up at once."""
HERE, FILE, DIRECTORY = "{here}", "{file}", "{directory}"
GATEWAY_FILE = "{gateway file}"
"""The same settings, with the prefix of a gateway as a client of upstream brokers."""
BROKER = ["--bootstrap-server", HERE, "--command-config", FILE]
MIRROR = ["mirror", "--topics", "t", "--from", HERE, "--to", HERE]

COMMAND_LINES: dict[str, list[str]] = {
    "topics": ["topics", "--list", *BROKER],
    "configs": ["configs", "--describe", "--topic", "t", *BROKER],
    "groups": ["groups", "--list", *BROKER],
    "reassign": ["reassign", "--list", *BROKER],
    "transactions": ["transactions", *BROKER, "list"],
    "features": ["features", *BROKER, "describe"],
    "acls": ["acls", "--list", *BROKER],
    "clients": ["clients", *BROKER],
    "console": ["console", *BROKER, "--listen", "http://127.0.0.1:0"],
    "faults": ["faults", "list", *BROKER],
    "produce": ["produce", "--topic", "t", *BROKER],
    "consume": ["consume", "--topic", "t", *BROKER],
    "reset": ["reset", *BROKER, "--yes"],
    "mirror from": [*MIRROR, "--once", "--consumer.config", FILE],
    "mirror to": [*MIRROR, "--once", "--producer.config", FILE],
    "perf-test producer": [
        "perf-test",
        "producer",
        "--topic",
        "t",
        "--num-records",
        "1",
        "--record-size",
        "1",
        *BROKER,
    ],
    "perf-test consumer": ["perf-test", "consumer", "--topic", "t", "--messages", "1", *BROKER],
    "gateway": ["gateway", "--upstream", HERE, "--override", "listeners=PLAINTEXT://127.0.0.1:0", GATEWAY_FILE],
    "api-versions": ["api-versions", *BROKER],
    "healthcheck": ["healthcheck", *BROKER],
    "doctor": ["doctor", HERE, "--command-config", FILE],
    "archive": ["pipeline", "archive", "--topics", "t", "--archive", f"{DIRECTORY}/lake", *BROKER],
    "audit": ["pipeline", "audit", "--topics", "t", *BROKER],
    "generate": ["pipeline", "generate", "--topic", "t", *BROKER],
    "mirror job from": ["pipeline", *MIRROR, "--consumer.config", FILE],
    "mirror job to": ["pipeline", *MIRROR, "--producer.config", FILE],
    "replay": ["pipeline", "replay", "--archive", f"{DIRECTORY}/lake", *BROKER],
    "restore": ["pipeline", "restore", "--archive", f"{DIRECTORY}/lake", *BROKER],
    "stats": ["pipeline", "stats", "--topics", "t", *BROKER],
}
NEEDS_MORE = ("mirror to", "mirror job to", "replay", "restore", "console", "gateway")
"""Commands that connect only after they have read another cluster or an archive, or for a browser; a gateway also waits
until upstream brokers can be reached (`tests/gateway/test_security.py`)."""
WITHOUT_CONNECTION = {
    *(
        "serve",
        "cluster",
        "dump-log",
        "log",
        "metadata",
        "state",
        "storage",
        "dev-certs",
        "config",
        "completion",
    ),
    *("backfill", "convert", "dead-letters", "package"),
}
"""Commands and jobs that connect to no broker, or that are brokers with settings of their own."""

NEEDS_SPARK = (
    pytest.mark.spark,
    pytest.mark.skipif(
        find_spec("pyspark") is None or find_spec("pyarrow") is None,
        reason="needs gregor-broker[spark]: `make pipeline`",
    ),
)


def cases(*left_out: str) -> list[ParameterSet]:
    """Return the command lines but those left out; jobs are skipped where Spark is absent."""
    return [
        pytest.param(line, marks=NEEDS_SPARK) if words[0] == "pipeline" else pytest.param(line)
        for line, words in COMMAND_LINES.items()
        if line not in left_out
    ]


def test_every_command_and_job_is_listed_in_this_file() -> None:
    named = {words[1] if words[0] == "pipeline" else words[0] for words in COMMAND_LINES.values()}
    assert named | WITHOUT_CONNECTION == {*COMMANDS, *JOBS} - {"pipeline"}


@dataclass
class Endpoint:
    """A server that keeps the first bytes of each connection, and refuses it by TLS."""

    address: tuple[str, int]
    first_bytes: list[bytes] = field(default_factory=list)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = Endpoint(listener.getsockname())

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(5)
                    try:
                        if data := connection.recv(2):
                            found.first_bytes.append(data)
                        connection.sendall(TLS_ALERT)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield found
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture(autouse=True)
def _one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Provide a record on standard input."""
    (tmp_path / "lines").write_text("record\n")
    with (tmp_path / "lines").open() as lines:
        monkeypatch.setattr("sys.stdin", lines)
        yield


def run(line: str, endpoint: Endpoint, directory: Path, settings: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that fails; return what it printed."""
    file = directory / "client.properties"
    file.write_text(settings)
    gateway_file = directory / "gateway.properties"
    gateway_file.write_text("".join(f"gregor.gateway.upstream.{line}\n" for line in settings.splitlines()))
    here = f"{endpoint.address[0]}:{endpoint.address[1]}"
    words = [
        word.replace(HERE, here)
        .replace(FILE, str(file))
        .replace(GATEWAY_FILE, str(gateway_file))
        .replace(DIRECTORY, str(directory))
        for word in COMMAND_LINES[line]
    ]
    assert main(words) != 0
    printed = capsys.readouterr()
    return printed.out + printed.err


@pytest.mark.parametrize("line", cases())
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("secruity.protocol=SSL\n", "unknown key 'secruity.protocol'; did you mean 'security.protocol'?"),
        ("sasl.machanism=PLAIN\n", "unknown key 'sasl.machanism'; did you mean 'sasl.mechanism'?"),
        (
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/nowhere/ca.pem\n",
            "ssl.truststore.location: cannot read /nowhere/ca.pem: No such file or directory",
        ),
    ],
    ids=["key of no client", "security key", "no file"],
)
def test_invalid_security_settings_are_named_before_anything_is_sent(
    line: str, settings: str, words: str, endpoint: Endpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in run(line, endpoint, tmp_path, settings, capsys)
    assert endpoint.first_bytes == [], "something was sent in clear"


@pytest.mark.parametrize("line", cases(*NEEDS_MORE))
def test_every_command_connects_with_tls_as_its_settings_file_says(
    line: str, endpoint: Endpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file serves all: keys of other clients do not matter."""
    trusted = written(tmp_path, "ca.pem", as_pem(authority().certificate))
    others = "acks=all\ngroup.id=g\nkey.deserializer=x\nrequest.timeout.ms=2000\n"
    settings = f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={trusted}\n{others}"
    printed = run(line, endpoint, tmp_path, settings, capsys)
    assert "SSL handshake" in printed
    assert b"\x16\x03" in endpoint.first_bytes
    if "mirror" not in line:
        assert set(endpoint.first_bytes) == {b"\x16\x03"}, "something was sent in clear"
