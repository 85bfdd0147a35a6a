"""The tools of Apache Kafka 3.9.1 and 4.3.0 with their client config files against our secured broker.

A scenario of one developer: each tool logs in by another mechanism, and the broker has ACLs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conformance.secured_gregor import MODULES, Secured, secured_gregor

pytestmark = pytest.mark.peer

RELEASES = ("3.9.1", "4.3.0")
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
ACL_CLASSES = {"3.9.1": "kafka.admin.AclCommand", "4.3.0": "org.apache.kafka.tools.AclCommand"}
PRODUCER_CLASSES = {"3.9.1": "kafka.tools.ConsoleProducer", "4.3.0": "org.apache.kafka.tools.ConsoleProducer"}
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOOL_LIMIT_S = 300
AUTHORIZER = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:user;User:ANONYMOUS",
)


@dataclass(frozen=True)
class Tools:
    """A runner of one release's tools against the secured broker."""

    script: Path
    release: str
    broker: Secured
    directory: Path

    def run(self, tool: str, *words: str, way: str, user: str = "user", password: str = "", text: str = "") -> str:
        """Run a tool that logs in by ``way``; return its standard output. Raises AssertionError if it fails."""
        done = self.attempt(tool, *words, way=way, user=user, password=password, text=text)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Exception" not in done.stdout + done.stderr
        return done.stdout

    def attempt(
        self, tool: str, *words: str, way: str, user: str = "user", password: str = "", text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool, which may fail."""
        file = self.directory / "client.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self.settings(way, user, password).items()))
        address = self.broker.ssl if way == "certificate" else self.broker.sasl
        environment = dict(os.environ)
        if self.release != "3.9.1":
            home = Path.home() / ".cache" / f"peer-kafka-{self.release}"
            environment |= {"PEER_VERSION": self.release, "PEER_HOME": str(home)}
        command = [str(self.script), "tool", tool, "--bootstrap-server", address, *words]
        named = [word.replace("{file}", str(file)) for word in command]
        return subprocess.run(
            named, capture_output=True, text=True, timeout=TOOL_LIMIT_S, check=False, env=environment, input=text
        )

    def settings(self, way: str, user: str, password: str) -> dict[str, str]:
        """Return the content of a client config file."""
        trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": f"{self.broker.files}/ca.pem"}
        if way == "certificate":
            own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": f"{self.broker.files}/client.pem"}
            return {"security.protocol": "SSL", **trusted, **own}
        if way == "OAUTHBEARER":
            options = f'unsecuredLoginStringClaim_sub="{user}"'
        else:
            options = f'username="{user}" password="{password or self.broker.password}"'
        jaas = f"org.apache.kafka.common.security.{MODULES[way]} required {options};"
        return {"security.protocol": "SASL_SSL", "sasl.mechanism": way, "sasl.jaas.config": jaas, **trusted}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Provide a broker with an authorizer, which knows one administrator."""
    with secured_gregor(tmp_path_factory.mktemp("secured"), *AUTHORIZER) as broker:
        yield broker


@pytest.mark.parametrize("release", RELEASES)
def test_each_tool_logs_in_by_its_config_file(shared: Path, secured: Secured, tmp_path: Path, release: str) -> None:
    script = shared / "peer" / "kafka39"
    if not script.exists() or shutil.which("java") is None:
        pytest.skip("Kafka's tools need ../shared/peer and a Java 17")
    tools = Tools(script, release, secured, tmp_path)
    topic, group, user = f"orders-{release}", f"group-{release}", f"clerk-{release}"
    config = ["--command-config", "{file}"]
    for_producer, for_consumer = (
        (config, config) if release != "3.9.1" else (["--producer.config", "{file}"], ["--consumer.config", "{file}"])
    )

    tools.run(TOPICS, *config, "--create", "--topic", topic, "--partitions", "2", way="certificate")
    scram = "SCRAM-SHA-512=[iterations=16384,password=clerk-secret]"
    changed = tools.run(
        CONFIGS, *config, "--alter", "--entity-type", "users", "--entity-name", user, "--add-config", scram, way="PLAIN"
    )
    assert f"Completed updating config for user {user}" in changed

    clerk = {"way": "SCRAM-SHA-512", "user": user, "password": "clerk-secret"}
    produce = (*for_producer, "--topic", topic)
    refused = tools.attempt(PRODUCER_CLASSES[release], *produce, text="refused\n", **clerk)
    assert "Not authorized to access topics" in refused.stdout + refused.stderr
    rights = ["--allow-principal", f"User:{user}", "--producer", "--topic", topic]
    added = tools.run(ACL_CLASSES[release], *config, "--add", *rights, way="SCRAM-SHA-256")
    assert f"principal=User:{user}, host=*, operation=WRITE, permissionType=ALLOW" in added
    tools.run(PRODUCER_CLASSES[release], *produce, text="first\nsecond\n", **clerk)

    read = tools.run(
        CONSUMER,
        *for_consumer,
        *("--topic", topic, "--group", group, "--from-beginning", "--max-messages", "2"),
        way="OAUTHBEARER",
    )
    assert sorted(read.split()) == ["first", "second"]
    described = tools.run(GROUPS, *config, "--describe", "--group", group, way="PLAIN")
    assert topic in described
    wrong = tools.attempt(TOPICS, *config, "--list", way="SCRAM-SHA-512", password="wrong")
    assert "Authentication failed during authentication due to invalid credentials" in wrong.stdout + wrong.stderr
