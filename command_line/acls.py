"""`gregor acls`: list, add and remove access control lists (ACLs), with the options of kafka-acls."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from itertools import product

import trio

from ..client.admin import Admin
from ..client.admin.security import AclBinding, AclFilter
from ..protocol.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from .asking import (
    UsageError,
    add_actions,
    add_connection_options,
    add_json_option,
    client_properties,
    run_client,
    say,
    say_json,
)

EXAMPLES = """\
examples:
  gregor acls --add --allow-principal User:alice --producer --topic orders
  gregor acls --add --allow-principal User:bob --consumer --topic orders --group billing
  gregor acls --add --allow-principal User:carol --operation Read --topic team- --resource-pattern-type prefixed
  gregor acls --add --deny-principal User:dave --deny-host 192.0.2.7 --operation All --topic '*'
  gregor acls --list --topic orders --resource-pattern-type match
  gregor acls --remove --topic orders --force

The broker needs authorizer.class.name; see docs/authorization.md.
"""

OPERATIONS = {operation.text.lower(): operation for operation in AclOperation if operation > AclOperation.ANY}
PATTERN_TYPES = {kind.name.lower(): kind for kind in PatternType if kind is not PatternType.UNKNOWN}
RESOURCES = {
    "topic": AclResourceType.TOPIC,
    "group": AclResourceType.GROUP,
    "transactional_id": AclResourceType.TRANSACTIONAL_ID,
    "delegation_token": AclResourceType.DELEGATION_TOKEN,
    "user_principal": AclResourceType.USER,
}
"""The option that names resources of a type, as an attribute of the parsed arguments."""
Resource = tuple[AclResourceType, str, PatternType]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "acls",
        help="list, add and remove access control lists (ACLs)",
        epilog=EXAMPLES,
    )
    add_connection_options(parser)
    add_json_option(parser)
    add_actions(
        parser,
        {
            "add": "add ACLs",
            "remove": "remove ACLs",
            "list": "list ACLs",
        },
    )
    _add_resource_options(parser)
    _add_entry_options(parser)
    parser.add_argument("--principal", action="append", default=[], help="with --list: only ACLs of this principal")
    parser.add_argument("--force", action="store_true", help="with --remove: do not ask")
    parser.set_defaults(run=run)


def _add_resource_options(parser: argparse.ArgumentParser) -> None:
    for option, text in (
        ("--topic", "name of a topic, * for all; repeatable"),
        ("--group", "name of a group, * for all; repeatable"),
        ("--transactional-id", "transactional id, * for all; repeatable"),
        ("--delegation-token", "id of a delegation token; repeatable"),
        ("--user-principal", "principal whose delegation tokens are meant; repeatable"),
    ):
        parser.add_argument(option, action="append", default=[], metavar="NAME", help=text)
    parser.add_argument("--cluster", action="store_true", help="the cluster itself")
    parser.add_argument(
        "--resource-pattern-type",
        type=str.lower,
        choices=PATTERN_TYPES,
        default="literal",
        help="whether names are whole names or prefixes; any and match are for --list and --remove (default: literal)",
    )


def _add_entry_options(parser: argparse.ArgumentParser) -> None:
    for option, text in (
        ("--allow-principal", "principal to allow, as User:alice, User:* for all; repeatable"),
        ("--deny-principal", "principal to deny; repeatable"),
        ("--allow-host", "address from which the allowed principals may connect (default: *); repeatable"),
        ("--deny-host", "address from which the denied principals are refused (default: *); repeatable"),
    ):
        metavar = "PRINCIPAL" if option.endswith("principal") else "HOST"
        parser.add_argument(option, action="append", default=[], metavar=metavar, help=text)
    names = ", ".join(operation.text for operation in OPERATIONS.values())
    parser.add_argument("--operation", action="append", default=[], help=f"one of {names} (default: All); repeatable")
    parser.add_argument("--producer", action="store_true", help="the operations that a producer needs")
    parser.add_argument("--consumer", action="store_true", help="the operations that a consumer needs")
    parser.add_argument(
        "--idempotent", action="store_true", help="with --producer: also IdempotentWrite on the cluster"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the action; the exit code is 1 if the broker refused."""

    async def work() -> None:
        _check(arguments)
        async with Admin(arguments.bootstrap_server, **client_properties(arguments)) as admin:
            await _ACTIONS[arguments.action](admin, arguments)

    return run_client(work, arguments.bootstrap_server)


def _check(arguments: argparse.Namespace) -> None:
    """Check that the options agree, as kafka-acls does. Raises UsageError."""
    for role in ("producer", "consumer"):
        if getattr(arguments, role) and (arguments.operation or arguments.deny_principal or arguments.deny_host):
            raise UsageError(f"--{role} excludes --operation, --deny-principal and --deny-host")
    if arguments.producer and not arguments.topic:
        raise UsageError("--producer needs --topic")
    if arguments.consumer and not (arguments.topic and arguments.group):
        raise UsageError("--consumer needs --topic and --group")
    if arguments.consumer and not arguments.producer and (arguments.cluster or arguments.transactional_id):
        raise UsageError("--consumer excludes --cluster and --transactional-id")
    if arguments.idempotent and not arguments.producer:
        raise UsageError("--idempotent needs --producer")
    if arguments.principal and arguments.action != "list":
        raise UsageError("--principal needs --list")
    entries = (arguments.allow_principal, arguments.deny_principal, arguments.allow_host, arguments.deny_host)
    if arguments.action == "list" and (any(entries) or arguments.producer or arguments.consumer):
        raise UsageError("--list shows the ACLs of resources (--topic and so on) and principals (--principal)")


def _resources(arguments: argparse.Namespace) -> list[Resource]:
    """Return the resources that the options name."""
    kind = PATTERN_TYPES[arguments.resource_pattern_type]
    named = [
        (resource_type, name.strip(), kind)
        for option, resource_type in RESOURCES.items()
        for name in getattr(arguments, option)
    ]
    if arguments.cluster or arguments.idempotent:
        named.append((AclResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
    return list(dict.fromkeys(named))


def _bindings(arguments: argparse.Namespace) -> list[AclBinding]:
    """Return the ACLs that the options describe; none without principals. Raises UsageError."""
    resources = _resources(arguments)
    if not resources:
        raise UsageError(
            "name a resource: --topic, --group, --cluster, --transactional-id, --delegation-token or --user-principal"
        )
    wanted = [
        AclBinding(resource_type, name, principal, operation, permission, host, kind)
        for resource_type, name, kind in resources
        for operation in _operations(resource_type, arguments)
        for permission, principal, host in _entries(arguments)
    ]
    return list(dict.fromkeys(wanted))


def _operations(resource_type: AclResourceType, arguments: argparse.Namespace) -> Sequence[AclOperation]:
    """Return the operations on resources of a type. Raises UsageError for operations that the type does not have."""
    if arguments.producer or arguments.consumer:
        return _operations_of_roles(resource_type, arguments)
    supported = (AclOperation.ALL, *SUPPORTED_OPERATIONS[resource_type])
    found = [_operation(text) for text in arguments.operation] or [AclOperation.ALL]
    if not set(found) <= set(supported):
        names = ", ".join(operation.text for operation in supported)
        raise UsageError(f"ResourceType {resource_type.name} only supports operations {names}")
    return found


def _operations_of_roles(resource_type: AclResourceType, arguments: argparse.Namespace) -> list[AclOperation]:
    read, write, describe = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
    producing: dict[AclResourceType, Sequence[AclOperation]] = {
        AclResourceType.TOPIC: (write, describe, AclOperation.CREATE),
        AclResourceType.TRANSACTIONAL_ID: (write, describe),
        AclResourceType.CLUSTER: (AclOperation.IDEMPOTENT_WRITE,) if arguments.idempotent else (),
    }
    consuming: dict[AclResourceType, Sequence[AclOperation]] = {
        AclResourceType.TOPIC: (read, describe),
        AclResourceType.GROUP: (read,),
    }
    roles = [
        role for role, is_chosen in ((producing, arguments.producer), (consuming, arguments.consumer)) if is_chosen
    ]
    return [operation for role in roles for operation in role.get(resource_type, ())]


def _operation(text: str) -> AclOperation:
    operation = OPERATIONS.get(text.strip().lower().replace("_", ""))
    if operation is None:
        raise UsageError(f"--operation {text}: expected one of {', '.join(o.text for o in OPERATIONS.values())}")
    return operation


def _entries(arguments: argparse.Namespace) -> Iterable[tuple[AclPermission, str, str]]:
    """Yield the permission, principal and host of each entry. Raises UsageError for a principal without a type."""
    for permission, principals, hosts in (
        (AclPermission.ALLOW, arguments.allow_principal, arguments.allow_host),
        (AclPermission.DENY, arguments.deny_principal, arguments.deny_host),
    ):
        for principal, host in product(principals, hosts or [WILDCARD]):
            if ":" not in principal:
                raise UsageError(f"expected a principal as User:alice, not {principal!r}")
            yield permission, principal.strip(), host.strip()


async def _add(admin: Admin, arguments: argparse.Namespace) -> None:
    if arguments.resource_pattern_type not in ("literal", "prefixed"):
        raise UsageError(f"--resource-pattern-type {arguments.resource_pattern_type} is not valid with --add")
    wanted = _bindings(arguments)
    if not wanted:
        raise UsageError("--add needs --allow-principal or --deny-principal")
    await admin.create_acls(wanted)
    _show("Added ACLs for resource", wanted)


async def _remove(admin: Admin, arguments: argparse.Namespace) -> None:
    bindings = _bindings(arguments)
    filters = [
        AclFilter(
            acl.resource_type,
            acl.resource_name,
            acl.principal,
            acl.operation,
            acl.permission,
            acl.host,
            acl.pattern_type,
        )
        for acl in bindings
    ]
    if not bindings:
        filters = [
            AclFilter(resource_type, name, pattern_type=kind) for resource_type, name, kind in _resources(arguments)
        ]
    if not arguments.force and not await _is_confirmed(admin, filters):
        return
    removed = await admin.delete_acls(filters)
    if not removed:
        say("No ACL matches.")
    _show("Removed ACLs for resource", removed)


async def _is_confirmed(admin: Admin, filters: Iterable[AclFilter]) -> bool:
    """Return whether the user agrees to remove the ACLs that match."""
    found = [acl for wanted in filters for acl in await admin.describe_acls(wanted)]
    if not found:
        return True
    _show("ACLs to remove for resource", found)
    try:
        answer = await trio.to_thread.run_sync(input, "Are you sure you want to remove these ACLs? (y/n) ")
    except EOFError:
        raise UsageError("no answer on standard input; --force removes without a question") from None
    return answer.strip().lower() == "y"


async def _list(admin: Admin, arguments: argparse.Namespace) -> None:
    resources: Sequence[Resource | None] = _resources(arguments) or [None]
    found: dict[AclBinding, None] = {}
    for resource in resources:
        if resource is None:
            wanted = AclFilter()
        else:
            resource_type, name, kind = resource
            wanted = AclFilter(resource_type, name, pattern_type=kind)
        found.update(dict.fromkeys(await admin.describe_acls(wanted)))
    if arguments.json:
        say_json([_as_object(acl) for acl in found if not arguments.principal or acl.principal in arguments.principal])
        return
    if not arguments.principal:
        _show("Current ACLs for resource", found)
    for principal in arguments.principal:
        say(f"ACLs for principal `{principal}`")
        _show("Current ACLs for resource", [acl for acl in found if acl.principal == principal])


def _as_object(acl: AclBinding) -> dict[str, object]:
    return {
        "resource_type": acl.resource_type.name,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }


def _show(title: str, acls: Iterable[AclBinding]) -> None:
    """Print ACLs by resource, in the words of kafka-acls."""
    by_resource: dict[Resource, list[AclBinding]] = {}
    for acl in sorted(acls, key=lambda acl: (acl.resource_type, acl.resource_name, acl.principal, acl.operation)):
        by_resource.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(acl)
    for (resource_type, name, kind), entries in by_resource.items():
        pattern = f"ResourcePattern(resourceType={resource_type.name}, name={name}, patternType={kind.name})"
        say(f"{title} `{pattern}`:")
        for acl in entries:
            say(
                f"\t(principal={acl.principal}, host={acl.host}, operation={acl.operation.name}, "
                f"permissionType={acl.permission.name})"
            )
        say()


_ACTIONS = {"add": _add, "remove": _remove, "list": _list}
