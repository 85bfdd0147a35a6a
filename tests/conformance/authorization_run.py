"""Asks a broker every request of `authorization_cases.py` with and without each right, and masks the answers.

Clients differ by their address: each combination of a request and rights has an address of its own in 127.0.0.0/8, with
ACLs for that host. So one broker answers all of them, without authentication. To record the answers of Kafka::

    ../shared/peer/kafka39 start 27192 authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer \
        allow.everyone.if.no.acl.found=true group.coordinator.rebalance.protocols=classic,consumer
    python -m tests.conformance.authorization_run 27192
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from gregor.protocol.acls import CLUSTER_NAME, AclPermission, AclResourceType, PatternType
from gregor.protocol.apis import ApiKey, api_key
from gregor.protocol.messages.api_versions import ApiVersionsRequest
from gregor.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.describe_acls import DescribeAclsRequest
from gregor.protocol.messages.init_producer_id import InitProducerIdRequest
from gregor.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from gregor.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gregor.protocol.schema import Struct
from tests.conformance.authorization_bodies import Place
from tests.conformance.authorization_cases import CASES, GROUP, TXN, Case, Grant
from tests.wire import Wire

RECORDED = Path(__file__).with_name("authorization_answers.json.gz")
"""The answers of Apache Kafka 3.9.1."""
ANYONE = "User:ANONYMOUS"
ADMIN = "127.0.0.1"
SHARED, SHARED_SECOND = "shared", "shared-second"
PATIENCE_S = 60.0
ACLS_AT_ONCE = 500
DROPPED = {"throttle_time_ms", "error_message", "documentation", "partition_size", "total_bytes", "usable_bytes"}
MASKED = {"host", "port", "cluster_id", "log_dir", "session_id", "member_id", "leader", "configs", "records"}
"""Fields of which only their presence is compared."""
OWN_PRODUCER = 777


@dataclass
class Variant:
    """A request with one set of rights, by a client with an address of its own."""

    case: Case
    version: int
    allowed: tuple[Grant, ...]
    denied: tuple[Grant, ...]
    number: int
    place: Place = field(init=False)

    def __post_init__(self) -> None:
        own = f"a{self.number}"
        topics = (own, f"{own}-second") if self.case.has_own_topics else (SHARED, SHARED_SECOND)
        if any(grant.name in ("missing", "new") for grant in self.case.grants):
            topics = (own, f"{own}-second")
        self.place = Place(*topics, f"{own}-group", f"{own}-txn", {})

    @property
    def label(self) -> str:
        """The name of the variant, which is the same in each run."""
        rights = [str(grant) for grant in self.allowed] + [f"not {grant}" for grant in self.denied]
        return f"{self.case.name} v{self.version}: {', '.join(rights) or 'no right'}"

    @property
    def address(self) -> str:
        """The client's address."""
        return f"127.{1 + self.number // 65000}.{self.number // 250 % 250}.{self.number % 250 + 1}"

    def acls(self) -> Iterator[AclCreation]:
        """Yield the client's ACLs."""
        for grants, permission in ((self.allowed, AclPermission.ALLOW), (self.denied, AclPermission.DENY)):
            for grant in grants:
                yield AclCreation(
                    resource_type=grant.resource_type,
                    resource_name=grant.resource_name(self.place),
                    principal=ANYONE,
                    host=self.address,
                    operation=grant.operation,
                    permission_type=permission,
                )


def variants(versions: dict[ApiKey, tuple[int, int]]) -> list[Variant]:
    """Return all requests with their rights, for an oracle that serves these versions.

    The newest version of each is asked with every single right, with all of them, and with each of them denied; older
    versions with no right and with all.
    """
    found: list[Variant] = []
    for case in CASES:
        lowest, highest = versions[case.key]
        last = min(highest, case.last)
        for version in range(max(lowest, case.first), last + 1):
            chosen: list[tuple[tuple[Grant, ...], tuple[Grant, ...]]] = [((), ()), (case.grants, ())]
            if version == last:
                chosen += [((grant,), ()) for grant in case.grants if len(case.grants) > 1]
                chosen += [(case.grants, (grant,)) for grant in case.grants]
            if not case.grants:
                chosen = chosen[:1]
            found += [Variant(case, version, *rights, number=0) for rights in chosen]
    return [Variant(v.case, v.version, v.allowed, v.denied, number) for number, v in enumerate(found)]


class Interview:
    """A run of all requests to one broker."""

    def __init__(self, address: tuple[str, int], admin: Wire, chosen: Iterable[Variant]) -> None:
        self.address = address
        self.variants = list(chosen)
        self.admin = admin

    def prepare(self) -> None:
        """Give all rights to the administrator only; create topics, groups and ACLs."""
        kinds = [kind for kind in AclResourceType if kind > AclResourceType.ANY]
        everything = [
            AclCreation(
                resource_type=kind,
                resource_name=CLUSTER_NAME if kind is AclResourceType.CLUSTER else "*",
                principal=ANYONE,
                host=ADMIN,
                operation=2,
                permission_type=AclPermission.ALLOW,
            )
            for kind in kinds
        ]
        self._create_acls(everything)
        self._create_topics()
        self._create_acls([acl for variant in self.variants for acl in variant.acls()])
        for variant in self.variants:
            if any(grant.resource_type is GROUP for grant in variant.case.grants):
                self._commit_offset(variant.place.group)
            if any(grant.resource_type is TXN for grant in variant.case.grants):
                self._begin(variant.place.txn)

    def _create_acls(self, acls: list[AclCreation]) -> None:
        before = self._acl_count() if acls else 0
        for start in range(0, len(acls), ACLS_AT_ONCE):
            answer = self.admin.ask(
                ApiKey.CREATE_ACLS, 3, CreateAclsRequest(creations=acls[start : start + ACLS_AT_ONCE])
            )
            assert not any(result.error_code for result in answer.results)
        wait_until(lambda: self._acl_count() >= before + len(acls))

    def _acl_count(self) -> int:
        everything = DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        answer = self.admin.ask(ApiKey.DESCRIBE_ACLS, 3, everything)
        return sum(len(resource.acls) for resource in answer.resources)

    def _create_topics(self) -> None:
        names = {SHARED, SHARED_SECOND}
        names.update(name for variant in self.variants for name in (variant.place.topic, variant.place.second))
        wanted = sorted(names)
        for start in range(0, len(wanted), 100):
            topics = [
                CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in wanted[start:][:100]
            ]
            answer = self.admin.ask(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=topics, timeout_ms=30000))
            assert not any(topic.error_code for topic in answer.topics)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in wanted])
        wait_until(lambda: not any(topic.error_code for topic in self.admin.ask(ApiKey.METADATA, 12, request).topics))
        ids = {topic.name: topic.topic_id for topic in self.admin.ask(ApiKey.METADATA, 12, request).topics}
        for variant in self.variants:
            variant.place.ids.update({name: ids[name] for name in (variant.place.topic, variant.place.second)})

    def _commit_offset(self, group: str) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
        topics = [OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in (SHARED, SHARED_SECOND)]
        request = OffsetCommitRequest(group_id=group, topics=topics)

        def is_committed() -> bool:
            answer = self.admin.ask(ApiKey.OFFSET_COMMIT, 2, request)
            return not any(partition.error_code for topic in answer.topics for partition in topic.partitions)

        self._until_coordinated(group, 0)
        wait_until(is_committed)

    def _begin(self, transactional_id: str) -> None:
        self._until_coordinated(transactional_id, 1)
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60000)
        wait_until(lambda: not self.admin.ask(ApiKey.INIT_PRODUCER_ID, 1, request).error_code)

    def _until_coordinated(self, key: str, key_type: int) -> None:
        from gregor.protocol.messages.find_coordinator import FindCoordinatorRequest

        request = FindCoordinatorRequest(key=key, key_type=key_type)
        wait_until(lambda: not self.admin.ask(ApiKey.FIND_COORDINATOR, 1, request).error_code)

    def answers(self) -> dict[str, Any]:
        """Ask all requests; return the masked answer of each, as JSON has it, by its label."""
        return {variant.label: json.loads(json.dumps(self._answer(variant))) for variant in self.variants}

    def _answer(self, variant: Variant) -> Any:
        with Wire(self.address, timeout=10, client_id="tester", source=variant.address) as client:
            try:
                answer = client.ask(
                    variant.case.key, variant.version, variant.case.request(variant.place, variant.version)
                )
            except ConnectionError:
                return "connection closed"
            except TimeoutError:
                return "no answer"
        return masked(answer, variant)


def wait_until(is_true: Any) -> None:
    """Call a function until its result is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline, "the broker is not ready"
        time.sleep(0.05)


def masked(answer: Struct, variant: Variant) -> Any:
    """Return an answer as JSON values, without values that may differ between two runs."""
    place = variant.place
    names = {f"{place.topic}-missing": "missing", f"{place.topic}-new": "new", place.second: "second"}
    names |= {place.topic: "topic", place.group: "group", place.txn: "txn"}
    ids = {place.ids[name]: f"id of {names[name]}" for name in (place.topic, place.second)}
    value = _plain(answer, names, ids)
    if variant.case.lists_all:
        entries = value[variant.case.lists_all]
        own = [entry for entry in entries if {"group", "txn"} & set(map(str, entry.values()))]
        value[variant.case.lists_all] = {"own": own, "others": len(entries) > len(own)}
    return value


def _plain(value: Any, names: dict[str, str], ids: dict[UUID, str], field_name: str = "") -> Any:
    if field_name in MASKED and not isinstance(value, int):
        return bool(value)
    if isinstance(value, Struct):
        fields = {name: getattr(value, name) for name in value.FIELD_DEFAULTS if name not in DROPPED}
        return {name: _plain(inside, names, ids, name) for name, inside in fields.items() if inside is not None}
    if isinstance(value, list):
        plain = [_plain(item, names, ids, field_name) for item in value]
        return sorted(plain, key=lambda item: json.dumps(item, sort_keys=True))
    if isinstance(value, UUID):
        return ids.get(value, "no id" if not value.int else "another id")
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, bytes | bytearray | memoryview):
        return len(value)
    if field_name in ("port", "session_id"):
        return value > 0
    if field_name == "producer_id" and value not in (-1, OWN_PRODUCER):
        return "an id"
    return value


def served_versions(address: tuple[str, int]) -> dict[ApiKey, tuple[int, int]]:
    """Return the versions that a broker lists."""
    with Wire(address) as wire:
        answer = wire.ask(ApiKey.API_VERSIONS, 2, ApiVersionsRequest())
    found = {}
    for listed in answer.api_keys:
        key = api_key(listed.api_key)
        if isinstance(key, ApiKey):
            found[key] = (listed.min_version, listed.max_version)
    return found


def interview(address: tuple[str, int], versions: dict[ApiKey, tuple[int, int]]) -> dict[str, Any]:
    """Return a broker's answers to all requests in these versions."""
    with Wire(address, client_id="admin") as admin:
        asking = Interview(address, admin, variants(versions))
        asking.prepare()
        return asking.answers()


def recorded() -> tuple[dict[ApiKey, tuple[int, int]], dict[str, Any]]:
    """Return the versions that Kafka serves, and its answers."""
    data = json.loads(gzip.decompress(RECORDED.read_bytes()))
    versions = {ApiKey[name]: (low, high) for name, (low, high) in data["versions"].items()}
    return versions, data["answers"]


def main() -> None:
    """Record the answers of the broker at a port of this machine."""
    address = ("127.0.0.1", int(sys.argv[1]))
    versions = served_versions(address)
    answers = interview(address, versions)
    data = {"versions": {key.name: span for key, span in versions.items()}, "answers": answers}
    RECORDED.write_bytes(gzip.compress(json.dumps(data, sort_keys=True).encode(), 9, mtime=0))
    print(f"{len(answers)} answers, {RECORDED.stat().st_size} bytes")


if __name__ == "__main__":
    main()
