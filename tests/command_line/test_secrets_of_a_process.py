"""Planted secrets of a broker process: neither its log, its pages, its ports nor the tools of the program show them."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest
import trio

from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig
from gregor.broker.config.listeners import ListenerError
from gregor.command_line import main
from tests.broker.authentication.secured_broker import PLAIN_MODULE
from tests.certificates import as_pem, authority, broker_identity, written
from tests.command_line.test_brokers_of_tests import served
from tests.command_line.test_client_tools import run
from tests.waiting import PATIENCE_S, wait_until

PLANTED = "planted-secret"
SCRAM = f"SCRAM-SHA-256=[iterations=4096,password={PLANTED}]"
PAGES = ("/", "/topics", "/groups", "/clients", "/faults", "/configs", "/brokers", "/absent", "/v1/broker", "/metrics")


def settings(directory: Path) -> Path:
    """Write a configuration in which each kind of secret is planted."""
    key = broker_identity().encrypted_key_pem(PLANTED)
    jaas = f'{PLAIN_MODULE} required username="admin" password="{PLANTED}" user_admin="{PLANTED}";'
    written(directory, "jaas.conf", f"KafkaServer {{\n{jaas}\n}};\nClient {{\n{jaas}\n}};\n")
    path = directory / "server.properties"
    path.write_text(
        "\n".join(
            (
                "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
                f"log.dirs={directory / 'data'}",
                "ssl.keystore.type=PEM",
                f"ssl.keystore.location={written(directory, 'broker.pem', key + broker_identity().chain_pem)}",
                f"ssl.key.password={PLANTED}",
                "ssl.truststore.type=PEM",
                f"ssl.truststore.location={written(directory, 'ca.pem', as_pem(authority().certificate))}",
                "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
                f"gregor.sasl.jaas.file={directory / 'jaas.conf'}",
                f"listener.name.elsewhere.scram-sha-256.sasl.jaas.config=x required password={PLANTED};",
                f"delegation.token.secret.key={PLANTED}",
                f"ssl.keystore.pasword={PLANTED}",
                "gregor.log.level=DEBUG",
                "gregor.console.listeners=http://127.0.0.1:0",
                "gregor.control.listeners=http://127.0.0.1:0",
                "gregor.metrics.listener=http://127.0.0.1:0",
                "gregor.fault.injection.enable=true",
            )
        )
    )
    return path


def page(address: str, path: str) -> str:
    """Return the body of a page, also if it is an error."""
    try:
        with urllib.request.urlopen(address + path, timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as refused:
        return refused.read().decode()


def addresses_in(log: str) -> set[str]:
    """Return the addresses of HTTP listeners that a log names."""
    return {word.rstrip(",;/") for word in log.split() if word.startswith("http://127.0.0.1:")}


def said(capture: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command of the program in this process; return its output and errors."""
    capture.readouterr()
    main([*words])
    return "".join(capture.readouterr())


def test_a_process_shows_no_secret(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    properties = settings(tmp_path)
    login = tmp_path / "client.properties"
    wrong = f'{PLAIN_MODULE} required username="admin" password="{PLANTED}-wrong";'
    login.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={wrong}\n")
    shown: dict[str, str] = {}
    with served(tmp_path, str(properties), port=()) as (facts, process):
        plaintext, _, secured = (listener.partition("://")[2] for listener in facts["listeners"])
        log = tmp_path / "log"
        wait_until(lambda: len(addresses_in(log.read_text())) >= 3)
        for address in addresses_in(log.read_text()):
            for path in PAGES:
                shown[address + path] = page(address, path)
        tools = (
            ("configs", "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"),
            ("clients",),
            ("topics", "--list", "--command-config", str(login)),
            ("configs", "--alter", "--entity-type", "users", "--entity-name", "u", "--add-config", SCRAM),
            ("configs", "--describe", "--entity-type", "users", "--entity-name", "u"),
            ("configs", "--alter", "--broker", "1", "--add-config", f"listener.name.ssl.ssl.key.password={PLANTED}"),
            ("configs", "--alter", "--broker", "1", "--add-config", f"listener.name.ssl.ssl.keystore.key={PLANTED}"),
            ("configs", "--alter", "--broker", "1", "--add-config", f"listener.name.x.y.sasl.jaas.config=x {PLANTED};"),
            ("configs", "--alter", "--broker", "1", "--add-config", f"unknown.password={PLANTED}"),
            ("configs", "--describe", "--broker", "1"),
        )
        for words in tools:
            shown[" ".join(words[:5])] = said(
                capfd, *words, "--bootstrap-server", secured if str(login) in words else plaintext
            )
        shown["doctor"] = said(capfd, "doctor", plaintext, "--dir", str(tmp_path / "data"))
        shown["the process's title"] = Path(f"/proc/{process.pid}/cmdline").read_text()
        shown["facts"] = str(facts)
    assert "ssl.key.password=null sensitive=true" in shown["configs --describe --entity-type brokers --entity-name"]
    metadata = str(tmp_path / "data" / "__cluster_metadata-0")
    dump = f"dump-log --cluster-metadata-decoder {metadata}/00000000000000000000.log"
    for command in ("config", f"log verify {metadata}", dump):
        shown[command] = said(capfd, *command.split())
    assert ("SCRAM" in shown[dump], shown[dump].count("(redacted)")) == (True, 3), shown[dump]
    shown["the log"] = (tmp_path / "log").read_text()
    assert "ssl.keystore.pasword is ignored" in shown["the log"]
    for place, text in shown.items():
        assert PLANTED not in text, place


BROKEN = {
    "a JAAS file that does not end": ("jaas.conf", f'KafkaServer {{ x required password="{PLANTED}'),
    "a JAAS file without a flag": ("jaas.conf", f"KafkaServer {{ {PLANTED} x; }};"),
    "a JAAS file with an option that is none": ("jaas.conf", f"KafkaServer {{ x required {PLANTED}; }};"),
    "a JAAS file without the users of PLAIN": ("jaas.conf", f'Other {{ x required password="{PLANTED}"; }};'),
    "a keystore with another password": ("broker.pem", "garbage"),
}


@pytest.mark.parametrize(("file", "content"), BROKEN.values(), ids=BROKEN)
def test_a_broker_that_cannot_start_shows_no_secret(tmp_path: Path, file: str, content: str) -> None:
    properties = settings(tmp_path)
    written(tmp_path, file, content)
    with pytest.raises(ListenerError) as refusal:
        trio.run(Broker(BrokerConfig.load(properties)).run)
    assert file in str(refusal.value) or "sasl.jaas.config" in str(refusal.value)
    assert PLANTED not in str(refusal.value)


def test_a_process_that_cannot_start_shows_no_traceback(tmp_path: Path) -> None:
    properties = settings(tmp_path)
    written(tmp_path, "jaas.conf", f'KafkaServer {{ x required password="{PLANTED}')
    done = run(None, "serve", str(properties))
    assert (done.code, done.err.count("jaas.conf")) == (1, 1)
    assert "Traceback" not in done.err
    assert PLANTED not in done.out + done.err
