"""`gregor dev-certs`: its files make a broker and clients that trust each other, as docs/security.md says."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import trio

from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig
from gregor.client.admin import Admin
from gregor.command_line import main
from gregor.storage.disk.properties import parse_properties

CLIENTS = {
    "client.properties": "SASL_SSL",
    "admin.properties": "SASL_SSL",
    "client-java.properties": "SASL_SSL",
    "client-certificate.properties": "SSL",
}


@pytest.mark.parametrize("host", [None, "localhost"])
async def test_broker_and_clients_trust_each_other(tmp_path: Path, nursery: trio.Nursery, host: str | None) -> None:
    hosts = [] if host is None else ["--host", host]
    assert main(["dev-certs", "--dir", str(tmp_path / "c"), "--user", "alice", *hosts]) == 0
    settings = parse_properties((tmp_path / "c/server.properties").read_text())
    settings |= {
        "listeners": "SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
        "log.dirs": str(tmp_path / "logs"),
        "gregor.shutdown.timeout.ms": "0",
    }
    del settings["advertised.listeners"]
    broker = Broker(BrokerConfig(settings))
    await nursery.start(broker.run)
    ports = {bound.name: bound.port for bound in broker.services.serving.listening}
    for file, listener in CLIENTS.items():
        properties = parse_properties((tmp_path / "c" / file).read_text())
        # The certificate names localhost; a client that dials it does not depend on the machine's resolver here.
        properties["ssl.endpoint.identification.algorithm"] = "" if host else "https"
        async with Admin(f"127.0.0.1:{ports[listener]}", **properties) as admin:
            assert (await admin.describe_cluster()).controller_id == 1
    nursery.cancel_scope.cancel()


def test_secrets_are_for_their_owner_alone_and_new_each_time(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for directory in (first, second):
        assert main(["dev-certs", "--dir", str(directory)]) == 0
    for path in first.iterdir():
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o644 if path.name == "ca.pem" else 0o600), path
        assert path.read_bytes() != (second / path.name).read_bytes(), path
    assert not [path for path in first.iterdir() if b"PRIVATE KEY" in path.read_bytes() and path.name == "ca.pem"]


def test_files_are_not_replaced_by_accident(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev-certs", "--dir", str(tmp_path)]) == 0
    before = (tmp_path / "broker.pem").read_bytes()
    assert main(["dev-certs", "--dir", str(tmp_path)]) == 1
    assert "exists: --force replaces the files" in capsys.readouterr().err
    assert (tmp_path / "broker.pem").read_bytes() == before
    assert main(["dev-certs", "--dir", str(tmp_path), "--force"]) == 0
    assert (tmp_path / "broker.pem").read_bytes() != before
    assert main(["dev-certs", "--dir", str(tmp_path), "--user", 'a"b', "--force"]) == 1
    assert main(["dev-certs", "--dir", str(tmp_path), "--days", "0", "--force"]) == 1
