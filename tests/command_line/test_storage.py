"""`gregor storage`: formatted directories, and users who may log in from the first start on."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig
from gregor.broker.metadata.scram_arguments import ScramArgumentError, parse_scram_argument
from gregor.client.admin import Admin
from gregor.client.errors import AuthenticationFailedError
from gregor.command_line import main
from gregor.command_line.kafka_tools import run_tool
from gregor.security.password import Password
from gregor.security.scram import salted_password
from tests.broker.authentication.secured_broker import SCRAM_MODULE

ALICE = "SCRAM-SHA-512=[name=alice,password=alice-planted]"
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAw"


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    """Provide a configuration with two log directories and a listener for SCRAM."""
    path = tmp_path / "server.properties"
    path.write_text(
        f"listeners=SASL_PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/a,{tmp_path}/b\n"
        "sasl.enabled.mechanisms=SCRAM-SHA-512\ngregor.shutdown.timeout.ms=0\n"
        "connection.failed.authentication.delay.ms=0\n"
    )
    return path


async def log_in(address: str, password: str) -> None:
    login = f'{SCRAM_MODULE} required username="alice" password="{password}";'
    async with Admin(
        address, security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=login
    ) as admin:
        assert (await admin.describe_cluster()).cluster_id == CLUSTER


def test_a_user_logs_in_at_the_first_start(properties: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["-t", CLUSTER, "-c", str(properties)]
    assert run_tool("kafka-storage", ["format", *options, "--add-scram", ALICE, "-f", "transaction.version=2"]) == 0
    said = capsys.readouterr()
    assert said.out.count("Formatting metadata directory") == 2
    assert "planted" not in said.out + said.err

    async def start() -> None:
        broker = Broker(BrokerConfig.load(properties))
        async with trio.open_nursery() as nursery:
            await nursery.start(broker.run)
            address = f"127.0.0.1:{broker.services.serving.listening[0].port}"
            await log_in(address, "alice-planted")
            with pytest.raises(AuthenticationFailedError):
                await log_in(address, "wrong")
            assert broker.services.metadata.state.features["transaction.version"] == 2
            nursery.cancel_scope.cancel()

    trio.run(start)
    assert main(["storage", "format", *options]) == 1
    assert "is already formatted. Use --ignore-formatted to ignore this directory" in capsys.readouterr().err
    assert main(["storage", "format", "--ignore-formatted", *options]) == 0
    assert capsys.readouterr().out == "All of the log directories are already formatted.\n"


def test_a_new_directory_is_added_to_formatted_ones(properties: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["-t", CLUSTER, "-c", str(properties)]
    assert main(["storage", "info", "-c", str(properties)]) == 1
    assert "b is not formatted." in capsys.readouterr().out
    assert main(["storage", "format", *options]) == 0
    properties.write_text(properties.read_text() + f"log.dirs={properties.parent}/a,{properties.parent}/c\n")
    assert main(["storage", "format", *options]) == 1
    assert main(["storage", "format", "-g", *options]) == 0
    capsys.readouterr()
    assert main(["storage", "info", "-c", str(properties)]) == 0
    shown = capsys.readouterr().out
    assert f"cluster.id={CLUSTER}" in shown
    assert f"  {properties.parent}/c" in shown


def test_add_scram_has_no_effect_on_a_node_that_is_no_controller(
    properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    properties.write_text(
        properties.read_text() + "process.roles=broker\nnode.id=2\ncontroller.quorum.voters=1@localhost:9\n"
        "listeners=PLAINTEXT://127.0.0.1:0\n"
    )
    assert main(["storage", "format", "-t", CLUSTER, "-c", str(properties), "--add-scram", ALICE]) == 0
    said = capsys.readouterr()
    assert "--add-scram: without effect on this node" in said.err
    assert "planted" not in said.out + said.err


def test_ids_are_random(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(["storage", "random-uuid"]) == 0
    first, second = capsys.readouterr().out.split()
    assert first != second
    assert len(first) == len(second) == 22


def test_a_salted_password_may_be_given() -> None:
    """Kafka's own example, and the same credential as from the password."""
    example = parse_scram_argument('SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]')
    assert (example.name, example.mechanism, example.iterations, example.salt) == ("alice", 2, 8192, b"7q")
    plain = parse_scram_argument("SCRAM-SHA-256=[name=alice,iterations=8192,salt=N3E=,password=x]")
    salted = salted_password("SCRAM-SHA-256", Password("x"), b"7q", 8192).hex()
    import base64

    text = base64.b64encode(bytes.fromhex(salted)).decode()
    same = parse_scram_argument(f"SCRAM-SHA-256=[name=alice,iterations=8192,salt=N3E=,saltedpassword={text}]")
    assert (same.stored_key, same.server_key) == (plain.stored_key, plain.server_key)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("planted", "Failed to find equals sign"),
        ("SCRAM-SHA-1=[name=a,password=planted]", "The add-scram mechanism SCRAM-SHA-1 is not supported"),
        ("SCRAM-SHA-256=name=a,password=planted]", r"to start with \["),
        ("SCRAM-SHA-256=[name=a,password=planted", r"to end with \]"),
        ("SCRAM-SHA-256=[name=a,password=x,planted]", "No equals sign found"),
        ("SCRAM-SHA-256=[password=planted]", "You must supply 'name'"),
        ("SCRAM-SHA-256=[name=a]", "one of 'password' or 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,password=planted,saltedpassword=YCE=]", "one of 'password' or 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YCE=]", "You must supply 'salt' with"),
        ("SCRAM-SHA-256=[name=a,password=planted,salt=!]", "Failed to decode given salt"),
        ("SCRAM-SHA-256=[name=a,password=planted,iterations=x]", "Failed to parse iterations count"),
        ("SCRAM-SHA-256=[name=a,password=planted,iterations=4095]", "'iterations' value must be >= 4096"),
        ("SCRAM-SHA-256=[name=a,password=planted,iterations=16385]", "'iterations' value must be <= 16384"),
        ('SCRAM-SHA-256=[name=a,password="planted]', "The quoted value of password does not end"),
        ("SCRAM-SHA-256=[name=a,password=planted,color=x]", "Unknown SCRAM configurations: color"),
        ("SCRAM-SHA-256=[name=,password=planted]", "Username must not be empty"),
    ],
)
def test_a_malformed_credential_is_refused_without_its_password(text: str, words: str) -> None:
    with pytest.raises(Exception, match=words) as refusal:
        parse_scram_argument(text)
    assert isinstance(refusal.value, ScramArgumentError) or "empty" in words
    assert "planted" not in str(refusal.value)
