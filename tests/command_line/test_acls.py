"""`gregor acls` against a broker with an authorizer: added, listed, removed and refused ACLs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.broker_process import BrokerProcess, running_broker
from tests.command_line.test_client_tools import run

AUTHORIZER = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Provide a broker with an authorizer, on which every client is a super user."""
    with running_broker(tmp_path_factory.mktemp("guarded"), AUTHORIZER, "super.users=User:ANONYMOUS") as broker:
        yield broker


def listed(broker: BrokerProcess, *words: str) -> list[str]:
    """Return the resources and entries that a listing shows, without Kafka's words around them."""
    found = []
    for line in run(broker, "acls", "--list", *words).lines:
        if line.startswith("Current ACLs"):
            pattern = line.partition("(")[2].rpartition(")")[0]
            found.append(" ".join(part.partition("=")[2] for part in pattern.split(", ")))
        elif line.startswith("\t"):
            found.append(" ".join(part.partition("=")[2] for part in line.strip("\t()").split(", ")))
    return found


def test_roles_are_added_and_removed(guarded: BrokerProcess) -> None:
    producer = ("--allow-principal", "User:alice", "--producer", "--idempotent", "--topic", "roles")
    both = ("--allow-principal", "User:bob", "--consumer", "--producer", "--topic", "roles", "--group", "g")
    assert run(guarded, "acls", "--add", *producer).code == 0
    assert run(guarded, "acls", "--add", *both, "--allow-host", "192.0.2.7", "--allow-host", "192.0.2.8").code == 0
    assert listed(guarded, "--topic", "roles") == [
        "TOPIC roles LITERAL",
        *(f"User:alice * {operation} ALLOW" for operation in ("WRITE", "CREATE", "DESCRIBE")),
        *(
            f"User:bob {host} {operation} ALLOW"
            for operation in ("READ", "WRITE", "CREATE", "DESCRIBE")
            for host in ("192.0.2.7", "192.0.2.8")
        ),
    ]
    assert listed(guarded, "--cluster", "--principal", "User:alice") == [
        "CLUSTER kafka-cluster LITERAL",
        "User:alice * IDEMPOTENT_WRITE ALLOW",
    ]
    removed = run(guarded, "acls", "--remove", *producer, "--force")
    assert "IDEMPOTENT_WRITE" in "".join(removed.lines)
    assert listed(guarded, "--principal", "User:alice") == []
    assert run(guarded, "acls", "--remove", "--topic", "roles", "--group", "g", "--force").code == 0
    assert listed(guarded) == []
    assert run(guarded, "acls", "--remove", "--topic", "roles", "--force").lines == ["No ACL matches."]


def test_acls_are_listed_as_json(guarded: BrokerProcess) -> None:
    added = ("--deny-principal", "User:eve", "--deny-host", "192.0.2.9", "--operation", "Read", "--topic", "js")
    assert run(guarded, "acls", "--add", *added, "--resource-pattern-type", "prefixed").code == 0
    named = ("--topic", "js", "--resource-pattern-type", "prefixed")
    assert json.loads("\n".join(run(guarded, "acls", "--list", "--json", *named).lines)) == [
        {
            "resource_type": "TOPIC",
            "resource_name": "js",
            "pattern_type": "PREFIXED",
            "principal": "User:eve",
            "host": "192.0.2.9",
            "operation": "READ",
            "permission": "DENY",
        }
    ]
    assert run(guarded, "acls", "--list", "--json", *named, "--principal", "User:bob").lines == ["[]"]
    assert run(guarded, "acls", "--remove", *named, "--force").code == 0


def test_acls_are_listed_and_removed_by_matching_resource_patterns(guarded: BrokerProcess) -> None:
    for name, kind in (("pat-", "prefixed"), ("*", "literal"), ("pat-1", "literal"), ("other", "literal")):
        words = ("--operation", "describe_configs", "--deny-principal", "User:eve", "--resource-pattern-type", kind)
        assert run(guarded, "acls", "--add", "--topic", name, *words).code == 0
    matching = listed(guarded, "--topic", "pat-1", "--resource-pattern-type", "match")
    assert matching[::2] == ["TOPIC * LITERAL", "TOPIC pat- PREFIXED", "TOPIC pat-1 LITERAL"]
    assert set(matching[1::2]) == {"User:eve * DESCRIBE_CONFIGS DENY"}
    for name in ("pat-1", "other"):
        run(guarded, "acls", "--remove", "--topic", name, "--resource-pattern-type", "match", "--force")
    assert listed(guarded) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--add", "--topic", "t"), "--allow-principal"),
        (("--add", "--allow-principal", "User:al"), "name a resource"),
        (("--add", "--topic", "t", "--allow-principal", "al"), "User:alice"),
        (("--add", "--topic", "t", "--allow-principal", "User:al", "--operation", "ClusterAction"), "only supports"),
        (("--add", "--topic", "t", "--allow-principal", "User:al", "--operation", "Red"), "expected one of All, Read"),
        (("--add", "--topic", "t", "--allow-principal", "User:al", "--resource-pattern-type", "any"), "not valid"),
        (("--add", "--producer", "--allow-principal", "User:al"), "--producer needs --topic"),
        (("--add", "--consumer", "--topic", "t", "--allow-principal", "User:al"), "--consumer needs"),
        (("--add", "--producer", "--topic", "t", "--deny-principal", "User:al"), "excludes"),
        (("--list", "--allow-principal", "User:al"), "--list shows"),
        (("--remove", "--topic", "t", "--principal", "User:al"), "--principal needs --list"),
    ],
)
def test_invalid_acl_options_are_refused(guarded: BrokerProcess, words: tuple[str, ...], reason: str) -> None:
    refused = run(guarded, "acls", *words)
    assert refused.code == 1
    assert reason in refused.err


def test_a_broker_without_an_authorizer_says_so(broker_process: BrokerProcess) -> None:
    refused = run(broker_process, "acls", "--list")
    assert (refused.code, refused.err.strip()) == (
        1,
        "Error: No Authorizer is configured on the broker (SECURITY_DISABLED)",
    )
