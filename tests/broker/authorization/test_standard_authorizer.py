"""Decisions of the authorizer: Kafka's rules one by one, against a plain reading of them, and the audit log."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable

import pytest

from gregor.broker.authorization.acl import Acl
from gregor.broker.authorization.acl_changes import new_record
from gregor.broker.authorization.standard_authorizer import StandardAuthorizer, audit
from gregor.broker.metadata.changes import AclsChanged
from gregor.broker.monitoring.loggers import logger_levels
from gregor.protocol.acls import IMPLIED_BY, AclOperation, AclPermission, AclResourceType, PatternType
from gregor.protocol.apis import ApiKey
from gregor.security.principal import KafkaPrincipal

READ, WRITE, DESCRIBE, ALTER, ALL = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALTER,
    AclOperation.ALL,
)
TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
ALICE = KafkaPrincipal("User", "alice")
HOME = "192.0.2.7"


def an_acl(
    name: str = "orders",
    operation: AclOperation = READ,
    *,
    principal: str = "User:alice",
    host: str = "*",
    pattern: PatternType = LITERAL,
    permission: AclPermission = ALLOW,
    kind: AclResourceType = TOPIC,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def an_authorizer(acls: Iterable[Acl] = (), *, super_users: str = "", allow: bool = False) -> StandardAuthorizer:
    authorizer = StandardAuthorizer(
        frozenset(filter(None, [super_users])), allows_without_acl=allow, most_decisions=100
    )
    authorizer.load(map(new_record, acls))
    return authorizer


@pytest.mark.parametrize(
    ("acls", "operation", "name", "expected"),
    [
        ([], READ, "orders", False),
        ([an_acl()], READ, "orders", True),
        ([an_acl()], READ, "order", False),
        ([an_acl()], WRITE, "orders", False),
        ([an_acl(operation=ALL)], WRITE, "orders", True),
        ([an_acl()], DESCRIBE, "orders", True),
        ([an_acl(operation=ALTER)], DESCRIBE, "orders", True),
        ([an_acl(operation=AclOperation.ALTER_CONFIGS)], AclOperation.DESCRIBE_CONFIGS, "orders", True),
        ([an_acl(operation=AclOperation.ALTER_CONFIGS)], DESCRIBE, "orders", False),
        ([an_acl(operation=DESCRIBE)], READ, "orders", False),
        ([an_acl("*")], READ, "orders", True),
        ([an_acl("*", pattern=PREFIXED)], READ, "orders", False),
        ([an_acl("ord", pattern=PREFIXED)], READ, "orders", True),
        ([an_acl("orders", pattern=PREFIXED)], READ, "orders", True),
        ([an_acl("orders-", pattern=PREFIXED)], READ, "orders", False),
        ([an_acl(principal="User:*")], READ, "orders", True),
        ([an_acl(principal="Group:*")], READ, "orders", False),
        ([an_acl(principal="User:bob")], READ, "orders", False),
        ([an_acl(host=HOME)], READ, "orders", True),
        ([an_acl(host="192.0.2.8")], READ, "orders", False),
        ([an_acl(kind=GROUP)], READ, "orders", False),
        ([an_acl(), an_acl("*", permission=DENY)], READ, "orders", False),
        ([an_acl("*"), an_acl("o", pattern=PREFIXED, permission=DENY)], READ, "orders", False),
        ([an_acl(), an_acl(principal="User:*", host=HOME, permission=DENY)], READ, "orders", False),
        ([an_acl(), an_acl(operation=DESCRIBE, permission=DENY)], READ, "orders", True),
        ([an_acl(operation=DESCRIBE), an_acl(permission=DENY)], DESCRIBE, "orders", True),
        ([an_acl(), an_acl(operation=ALL, permission=DENY)], READ, "orders", False),
    ],
)
def test_acls_allow_or_deny_an_operation_by_kafkas_rules(
    acls: list[Acl], operation: AclOperation, name: str, expected: bool
) -> None:
    authorizer = an_authorizer(acls)
    assert authorizer.decide(ALICE, HOME, operation, TOPIC, name).is_allowed is expected
    assert authorizer.decide(ALICE, HOME, operation, TOPIC, name).is_allowed is expected, "the cached decision"


def test_super_users_are_never_denied() -> None:
    authorizer = an_authorizer([an_acl("*", ALL, permission=DENY)], super_users="User:alice")
    assert authorizer.decide(ALICE, HOME, READ, TOPIC, "orders").is_allowed


def test_allow_everyone_if_no_acl_found_applies_to_resources_without_acls() -> None:
    authorizer = an_authorizer([an_acl(principal="User:bob"), an_acl("pay", pattern=PREFIXED)], allow=True)
    decisions = {
        name: authorizer.decide(ALICE, HOME, WRITE, TOPIC, name).is_allowed for name in ("orders", "payments", "x")
    }
    assert decisions == {"orders": False, "payments": False, "x": True}


@pytest.mark.parametrize(
    ("peer", "java"),
    [
        ("::1", "0:0:0:0:0:0:0:1"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::a:1%eth0", "fe80:0:0:0:0:0:a:1%eth0"),
        ("192.0.2.7", "192.0.2.7"),
    ],
)
def test_hosts_are_written_as_in_java(peer: str, java: str) -> None:
    assert an_authorizer([an_acl(host=java)]).decide(ALICE, peer, READ, TOPIC, "orders").is_allowed


def test_changed_acls_apply_at_once() -> None:
    authorizer = an_authorizer()
    record, prefixed = new_record(an_acl()), new_record(an_acl("ord", WRITE, pattern=PREFIXED))

    def may() -> tuple[bool, bool]:
        return tuple(
            authorizer.decide(ALICE, HOME, operation, TOPIC, "orders").is_allowed for operation in (READ, WRITE)
        )  # type: ignore[return-value]

    assert may() == (False, False)
    authorizer.follow(AclsChanged(added=(record, prefixed), removed=()))
    assert may() == (True, True)
    authorizer.follow(AclsChanged(added=(), removed=(prefixed,)))
    assert may() == (True, False)
    authorizer.follow(AclsChanged(added=(), removed=(record, prefixed)))
    assert may() == (False, False)


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([an_acl(operation=WRITE)], True),
        ([an_acl(operation=ALL)], True),
        ([an_acl(operation=READ)], False),
        ([an_acl(operation=WRITE, principal="User:bob")], False),
        ([an_acl(operation=WRITE), an_acl("*", WRITE, permission=DENY)], False),
        ([an_acl(operation=WRITE), an_acl("*", ALL, permission=DENY, host="192.0.2.8")], True),
        ([an_acl("*", WRITE), an_acl("o", WRITE, permission=DENY, pattern=PREFIXED)], True),
        ([an_acl(operation=WRITE), an_acl(operation=WRITE, permission=DENY)], False),
        ([an_acl(operation=WRITE), an_acl("ord", WRITE, permission=DENY, pattern=PREFIXED)], False),
        ([an_acl("ord", WRITE, pattern=PREFIXED), an_acl("order", WRITE, permission=DENY, pattern=PREFIXED)], True),
        ([an_acl("ord", WRITE, pattern=PREFIXED), an_acl("ord", WRITE, permission=DENY, pattern=PREFIXED)], False),
        ([an_acl(operation=WRITE, kind=GROUP)], False),
    ],
)
def test_an_operation_on_any_resource_of_a_type_needs_an_acl_that_no_deny_covers(
    acls: list[Acl], expected: bool
) -> None:
    assert an_authorizer(acls).may_do_with_any(ALICE, HOME, WRITE, TOPIC, ApiKey.INIT_PRODUCER_ID) is expected


def test_the_acl_index_decides_as_a_linear_scan_of_all_acls_does() -> None:
    chance = random.Random(17)
    names = ["a", "ab", "abc", "abcd", "b", "*", "ba"]

    def random_acl() -> Acl:
        return an_acl(
            chance.choice(names),
            chance.choice([READ, WRITE, DESCRIBE, ALL]),
            principal=chance.choice(["User:alice", "User:bob", "User:*"]),
            host=chance.choice(["*", HOME, "192.0.2.8"]),
            pattern=chance.choice([LITERAL, PREFIXED]),
            permission=chance.choice([ALLOW, ALLOW, DENY]),
            kind=chance.choice([TOPIC, GROUP]),
        )

    present: dict[Acl, object] = {}
    authorizer = an_authorizer()
    for _ in range(600):
        acl = random_acl()
        if acl in present:
            authorizer.follow(AclsChanged((), (present.pop(acl),)))  # type: ignore[arg-type]
        else:
            present[acl] = record = new_record(acl)
            authorizer.follow(AclsChanged((record,), ()))
        while len(present) > 12:
            authorizer.follow(AclsChanged((), (present.pop(chance.choice(list(present))),)))  # type: ignore[arg-type]
        for name in ("a", "abcde", "ba", "c"):
            for operation in (READ, DESCRIBE):
                decided = authorizer.decide(ALICE, HOME, operation, TOPIC, name).is_allowed
                assert decided is read_plainly(present, operation, name), (list(present), operation, name)


def read_plainly(acls: Iterable[Acl], operation: AclOperation, name: str) -> bool:
    """Return the decision for Alice at home by Kafka's rules, from a reading of every ACL."""
    mine = [
        acl
        for acl in acls
        if acl.resource_type is TOPIC
        and acl.principal in ("User:alice", "User:*")
        and acl.host in ("*", HOME)
        and (name.startswith(acl.resource_name) if acl.pattern_type is PREFIXED else acl.resource_name in (name, "*"))
    ]
    if any(acl.permission is DENY and acl.operation in (operation, ALL) for acl in mine):
        return False
    implied = {operation, ALL, *IMPLIED_BY.get(operation, ())}
    return any(acl.permission is ALLOW and acl.operation in implied for acl in mine)


def test_a_bounded_number_of_decisions_is_kept() -> None:
    authorizer = an_authorizer([an_acl("*")])
    for number in range(1000):
        authorizer.decide(ALICE, HOME, READ, TOPIC, f"orders-{number}")
        authorizer.decide(ALICE, HOME, READ, TOPIC, f"{number}" * 300)
    kept = authorizer._decisions
    assert 0 < len(kept) <= 100
    assert all(len(key[-1]) < 250 for key in kept)


def test_the_audit_log_has_kafkas_lines_and_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1, audit.name)
    authorizer = an_authorizer([an_acl(), an_acl("ord", WRITE, pattern=PREFIXED, permission=DENY)])
    authorizer.is_authorized(ALICE, HOME, READ, TOPIC, "orders", api_key=ApiKey.FETCH, mentions=2)
    authorizer.is_authorized(ALICE, HOME, WRITE, TOPIC, "orders", api_key=ApiKey.PRODUCE)
    authorizer.is_authorized(ALICE, HOME, READ, GROUP, "g\nfoo", api_key=ApiKey.JOIN_GROUP)
    authorizer.is_authorized(ALICE, HOME, READ, TOPIC, "other", api_key=ApiKey.METADATA, logs_denied=False)
    authorizer.is_authorized(ALICE, HOME, READ, TOPIC, "orders", api_key=ApiKey.METADATA, logs_allowed=False)
    allowing = "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=orders, patternType=LITERAL, "
    allowing += "principal=User:alice, host=*, operation=READ, permissionType=ALLOW))"
    denying = "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=ord, patternType=PREFIXED, "
    denying += "principal=User:alice, host=*, operation=WRITE, permissionType=DENY))"
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.DEBUG, audited("Allowed operation = READ", "Topic:LITERAL:orders", "Fetch", 2, allowing)),
        (logging.INFO, audited("Denied operation = WRITE", "Topic:LITERAL:orders", "Produce", 1, denying)),
        (logging.INFO, audited("Denied operation = READ", "Group:LITERAL:g\\nfoo", "JoinGroup", 1, "DefaultDeny")),
        (5, audited("Denied operation = READ", "Topic:LITERAL:other", "Metadata", 1, "DefaultDeny")),
        (5, audited("Allowed operation = READ", "Topic:LITERAL:orders", "Metadata", 1, allowing)),
    ]


def test_the_level_of_the_audit_log_may_be_set_by_clients() -> None:
    assert audit.name in logger_levels()


def audited(decision: str, resource: str, api: str, mentions: int, rule: str) -> str:
    return (
        f"Principal = User:alice is {decision} from host = 192.0.2.7 on resource = {resource} for request = {api} "
        f"with resourceRefCount = {mentions} based on rule {rule}"
    )
