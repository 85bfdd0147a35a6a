"""Real clients log in by each mechanism that they have: they produce a record and read it back over SASL_SSL or SSL.

The libraries are those that ``../shared/clients`` has built, and Go's; the programs are in ``secured_clients/``.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.secured_gregor import MODULES, Secured, secured_gregor

pytestmark = pytest.mark.peer

PROGRAMS = Path(__file__).parent / "secured_clients"
BUILDS = Path.home() / ".cache/gregor-secured-clients"
JAXB = "javax.xml.bind:jaxb-api:2.3.1"
ZOO = Path(os.environ.get("ZOO_HOME", Path.home() / ".cache/client-zoo"))
JACKSON = sorted((Path.home() / ".cache/peer-kafka39/lib").glob("jackson-*.jar"))
CERTIFICATE = "certificate"
SASL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
EVERYTHING = (CERTIFICATE, *SASL, "OAUTHBEARER")
CLIENTS = {
    "java-0.10.0": (CERTIFICATE,),
    "java-0.10.2": (CERTIFICATE, *SASL),
    "java-0.11": (CERTIFICATE, *SASL),
    "java-1.1": (CERTIFICATE, *SASL),
    "java-2.8": EVERYTHING,
    "java-3.9": EVERYTHING,
    "java-4.4": EVERYTHING,
    "confluent-kafka": EVERYTHING,
    "confluent-kafka-2.0": EVERYTHING,
    "kafka-python": EVERYTHING,
    "aiokafka": EVERYTHING,
    "kafkajs": EVERYTHING,
    "franz-go": EVERYTHING,
    "sarama": EVERYTHING,
}
"""Logins that are tested with each client: a certificate on the listener SSL, or a SASL mechanism on SASL_SSL."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Provide a broker as a developer starts it."""
    with secured_gregor(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


GO_CLIENTS = ("franz-go", "sarama")
CASES = [(client, way) for client, ways in CLIENTS.items() for way in ways]


@pytest.mark.parametrize(("client", "way"), CASES)
def test_a_real_client_logs_in(secured: Secured, tmp_path: Path, client: str, way: str) -> None:
    if client not in GO_CLIENTS and not (ZOO / client).exists():
        pytest.skip(f"no {client} in {ZOO}: ../shared/clients/zoo builds it")
    kind = client.partition("-")[0] if client.startswith(("java", "confluent")) else client
    topic, value = f"{client}-{way}", f"{client} by {way}"
    command, environment = COMMANDS[kind](secured, tmp_path, client, way)
    run = subprocess.run(
        [*command, topic, value],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )
    assert run.stdout.strip().splitlines()[-1:] == [value], run.stderr[-2000:]


Command = tuple[list[str], dict[str, str]]


def java(secured: Secured, directory: Path, client: str, way: str) -> Command:
    settings = {
        "bootstrap.servers": secured.ssl if way == CERTIFICATE else secured.sasl,
        "security.protocol": "SSL" if way == CERTIFICATE else "SASL_SSL",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": f"{secured.files}/truststore.p12",
        "ssl.truststore.password": secured.store_password,
    }
    if way == CERTIFICATE:
        settings |= {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": f"{secured.files}/client.p12",
            "ssl.keystore.password": secured.store_password,
            "ssl.key.password": secured.store_password,
        }
    else:
        own = (
            'unsecuredLoginStringClaim_sub="user"'
            if way == "OAUTHBEARER"
            else f'username="user" password="{secured.password}"'
        )
        module = f"org.apache.kafka.common.security.{MODULES[way]}"
        settings |= {"sasl.mechanism": way, "sasl.jaas.config": f"{module} required {own};"}
    path = directory / "client.properties"
    path.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    program = str(PROGRAMS / "SecuredClient.java")
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    # Java's OAUTHBEARER needs Jackson, which applications add to kafka-clients.
    classes = ":".join([f"{ZOO / client}/lib/*", *map(str, JACKSON), *jaxb(client, way)])
    return ["java", *options, "-cp", classes, program, str(path)], {}


def jaxb(client: str, way: str) -> list[str]:
    """Return what SCRAM of Kafka 0.10 and 0.11 takes from Java 8 and what later Java has no more: JAXB's Base64."""
    if not (client.startswith("java-0.1") and way.startswith("SCRAM")):
        return []
    jar = BUILDS / f"{JAXB.partition(':')[2].replace(':', '-')}.jar"
    if not jar.exists():
        copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
        command = ["mvn", "-q", "-B", copy, f"-Dartifact={JAXB}", f"-DoutputDirectory={BUILDS}"]
        subprocess.run(command, check=True, timeout=300)
    return [str(jar)]


def confluent(secured: Secured, directory: Path, client: str, way: str) -> Command:
    settings = {"bootstrap.servers": secured.sasl, "ssl.ca.location": f"{secured.files}/ca.pem"}
    if way == CERTIFICATE:
        pem = f"{secured.files}/client.pem"
        settings |= {"security.protocol": "SSL", "bootstrap.servers": secured.ssl}
        settings |= {"ssl.certificate.location": pem, "ssl.key.location": pem}
    elif way == "OAUTHBEARER":
        settings |= {"security.protocol": "SASL_SSL", "sasl.mechanism": way}
        settings |= {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=user"}
    else:
        settings |= {"security.protocol": "SASL_SSL", "sasl.mechanism": way}
        settings |= {"sasl.username": "user", "sasl.password": secured.password}
    return [f"{ZOO / client}/venv/bin/python", str(PROGRAMS / "confluent.py"), json.dumps(settings)], {}


def token() -> str:
    """Return an unsecured token for the user."""
    now = int(time.time()) - 1
    claims = {"sub": "user", "iat": now, "exp": now + 3600}
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims)
    ]
    return ".".join([*parts, ""])


def python_settings(secured: Secured, way: str) -> dict[str, str]:
    if way == CERTIFICATE:
        return {"bootstrap_servers": secured.ssl, "security_protocol": "SSL"}
    settings = {"bootstrap_servers": secured.sasl, "security_protocol": "SASL_SSL", "sasl_mechanism": way}
    if way == "OAUTHBEARER":
        return {**settings, "token": token()}
    return {**settings, "sasl_plain_username": "user", "sasl_plain_password": secured.password}


def kafka_python(secured: Secured, directory: Path, client: str, way: str) -> Command:
    settings = python_settings(secured, way) | {"ssl_cafile": f"{secured.files}/ca.pem"}
    if way == CERTIFICATE:
        settings |= dict.fromkeys(("ssl_certfile", "ssl_keyfile"), f"{secured.files}/client.pem")
    return [f"{ZOO / client}/venv/bin/python", str(PROGRAMS / "kafka_python.py"), json.dumps(settings)], {}


def aiokafka(secured: Secured, directory: Path, client: str, way: str) -> Command:
    settings = python_settings(secured, way) | {"cafile": f"{secured.files}/ca.pem"}
    if way == CERTIFICATE:
        settings |= dict.fromkeys(("certfile", "keyfile"), f"{secured.files}/client.pem")
    return [f"{ZOO / client}/venv/bin/python", str(PROGRAMS / "aiokafka_client.py"), json.dumps(settings)], {}


def kafkajs(secured: Secured, directory: Path, client: str, way: str) -> Command:
    settings: dict[str, object] = {"brokers": secured.sasl, "ca": f"{secured.files}/ca.pem"}
    if way == CERTIFICATE:
        settings |= {"brokers": secured.ssl, "pem": f"{secured.files}/client.pem"}
    elif way == "OAUTHBEARER":
        settings["token"] = token()
    else:
        settings["sasl"] = {"mechanism": way.lower(), "username": "user", "password": secured.password}
    return ["node", str(PROGRAMS / "kafkajs.js"), json.dumps(settings)], {"NODE_PATH": f"{ZOO / client}/node_modules"}


def go(secured: Secured, directory: Path, client: str, way: str) -> Command:
    if shutil.which("go") is None:
        pytest.skip("no Go")
    source = PROGRAMS / client.replace("-", "_")
    program = BUILDS / client
    subprocess.run(["go", "build", "-C", str(source), "-o", str(program), "."], check=True, timeout=600)
    settings = {"brokers": secured.sasl, "ca": f"{secured.files}/ca.pem"}
    if way == CERTIFICATE:
        settings |= {"brokers": secured.ssl, "pem": f"{secured.files}/client.pem"}
    elif way == "OAUTHBEARER":
        settings |= {"mechanism": way, "given": token()}
    else:
        settings |= {"mechanism": way, "username": "user", "password": secured.password}
    return [str(program), json.dumps(settings)], {}


COMMANDS: dict[str, Callable[[Secured, Path, str, str], Command]] = {
    "java": java,
    "confluent": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "kafkajs": kafkajs,
    "franz-go": go,
    "sarama": go,
}
