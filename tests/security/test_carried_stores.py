"""Settings of a client that are sent to a machine without the files of its stores."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from gregor.command_line import main
from gregor.security.client_security import ClientSecurity
from gregor.security.errors import SecuritySettingError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with keys and certificates."""
    directory = tmp_path_factory.mktemp("stores")
    assert main(["dev-certs", "--dir", str(directory), "--user", "user"]) == 0
    return directory


def moved(security: ClientSecurity, *files: Path) -> ClientSecurity:
    """Return the settings as another machine has them, which lacks these files."""
    sent = pickle.dumps(security)
    for file in files:
        file.unlink()
    there: ClientSecurity = pickle.loads(pickle.dumps(pickle.loads(sent)))
    return there


@pytest.mark.parametrize("has_key", [False, True])
@pytest.mark.parametrize("store_type", ["PEM", "PKCS12"])
def test_stores_are_sent_with_the_settings(made: Path, tmp_path: Path, store_type: str, has_key: bool) -> None:
    trusted, key = tmp_path / "trusted", tmp_path / "key"
    trusted.write_bytes((made / ("ca.pem" if store_type == "PEM" else "truststore.p12")).read_bytes())
    key.write_bytes((made / "client.pem").read_bytes())
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.type": store_type,
        "ssl.truststore.location": str(trusted),
        "ssl.endpoint.identification.algorithm": "",
    }
    if store_type == "PKCS12":
        java = (made / "client-java.properties").read_text()
        properties["ssl.truststore.password"] = java.partition("truststore.password=")[2].splitlines()[0]
    if has_key:
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key)}
    there = moved(ClientSecurity.from_properties(properties), trusted, key)
    assert there.tls.files == []
    assert (there.tls.key_material() is not None) == has_key
    assert there.tls_context.get_ca_certs() != []
    assert not there.tls_context.check_hostname


def test_a_machine_uses_its_own_files_where_it_has_them(made: Path, tmp_path: Path) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes((made / "ca.pem").read_bytes())
    properties = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(trusted)}
    security = ClientSecurity.from_properties(properties)
    sent = pickle.dumps(security)
    trusted.write_text("-----BEGIN nothing-----")
    there = pickle.loads(sent)
    assert there == security
    with pytest.raises(SecuritySettingError, match="holds no certificates"):
        _ = there.tls_context


def test_secrets_of_sent_stores_are_not_shown(made: Path, tmp_path: Path) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes((made / "ca.pem").read_bytes())
    properties = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(trusted)}
    properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(made / "client.pem")}
    there = moved(ClientSecurity.from_properties(properties), trusted)
    assert "BEGIN" not in repr(there)
