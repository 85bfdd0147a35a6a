"""Administrative operations, API by API, with the common answers of Gregor and Apache Kafka 3.9.1."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID, uuid4

import pytest
import trio

from gregor.client import Admin, Consumer, Producer
from gregor.client.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    AlterOperation,
    ElectionType,
    NewTopic,
    QuotaAlteration,
    ResourceType,
    ScramMechanism,
    ScramUpsertion,
)
from gregor.client.admin.quotas import ANY_NAME
from gregor.client.wire.offset_lookup import EARLIEST, LATEST, MAX_TIMESTAMP
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import BrokerError, ErrorCode
from tests.waiting import PATIENCE_S

Scene = Callable[[Admin, str], Awaitable[None]]


async def refused(call: Awaitable[object], *codes: ErrorCode) -> None:
    """Check that the call fails with one of these error codes."""
    with pytest.raises(BrokerError) as caught:
        await call
    assert caught.value.code in codes


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds: Kafka's brokers learn of a change after the controller confirms it."""
    with trio.fail_after(PATIENCE_S):
        while True:
            if await holds():
                return
            await trio.sleep(0.01)


async def new_topic(admin: Admin, partitions: int = 1, **configs: str) -> str:
    name = f"admin-{uuid4().hex[:12]}"
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    await admin.create_topics([NewTopic(name, partitions, 1, settings)])

    async def is_known() -> bool:
        return name in await admin.list_topics()

    await until(is_known)
    return name


async def topics(admin: Admin, bootstrap: str) -> None:
    name = await new_topic(admin, 2)
    await refused(admin.create_topics([NewTopic(name, 1, 1)]), ErrorCode.TOPIC_ALREADY_EXISTS)
    await admin.create_topics([NewTopic(f"{name}-not", 1, 1)], validate_only=True)
    assert f"{name}-not" not in await admin.list_topics()
    await admin.create_partitions(name, 3)
    await refused(admin.create_partitions(name, 2), ErrorCode.INVALID_PARTITIONS)

    async def has_grown() -> bool:
        (described,) = await admin.describe_topics([name])
        return len(described.partitions) == 3

    async def is_gone() -> bool:
        return name not in await admin.list_topics()

    await until(has_grown)
    await admin.delete_topics([name])
    await until(is_gone)
    await refused(admin.describe_topics([name]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def configs(admin: Admin, bootstrap: str) -> None:
    name = await new_topic(admin, segment_ms="1000")

    async def values_become(**expected: str) -> None:
        wanted = {key.replace("_", "."): value for key, value in expected.items()}

        async def are_so() -> bool:
            entries = await admin.describe_configs(ResourceType.TOPIC, name, list(wanted))
            return {entry.name: entry.value for entry in entries} == wanted

        await until(are_so)

    await values_become(segment_ms="1000")
    await admin.alter_configs(ResourceType.TOPIC, name, [(AlterOperation.SET, "segment.ms", "2000")])
    await admin.alter_configs(
        ResourceType.TOPIC, name, [(AlterOperation.APPEND, "cleanup.policy", "compact")], validate_only=True
    )
    await values_become(segment_ms="2000", cleanup_policy="delete")
    await admin.alter_configs(ResourceType.TOPIC, name, [(AlterOperation.APPEND, "cleanup.policy", "compact")])
    await values_become(cleanup_policy="delete,compact")
    await admin.replace_configs(ResourceType.TOPIC, name, {"segment.bytes": "1048576"})
    await values_become(segment_ms="604800000", segment_bytes="1048576")
    wrong = admin.alter_configs(ResourceType.TOPIC, name, [(AlterOperation.SET, "segment.ms", "soon")])
    await refused(wrong, ErrorCode.INVALID_CONFIG)
    entries = await admin.describe_configs(
        ResourceType.TOPIC, name, ["segment.bytes"], include_synonyms=True, include_documentation=True
    )
    assert entries[0].synonyms
    assert entries[0].documentation
    (node,) = (await admin.describe_cluster()).brokers
    assert await admin.describe_configs(ResourceType.BROKER, str(node), ["log.dirs"])
    assert await admin.list_client_metrics_resources() == []


async def groups(admin: Admin, bootstrap: str) -> None:
    name = await new_topic(admin)
    group_id = f"g-{name}"
    async with Producer(bootstrap) as producer:
        await (await producer.send(name, b"v"))
    async with Consumer(
        bootstrap, group_id=group_id, auto_offset_reset="earliest", group_instance_id="static"
    ) as consumer:
        consumer.subscribe([name])
        await consumer.poll()
        await consumer.commit()
        assert group_id in [group.group_id for group in await admin.list_groups(states=["Stable"], types=["classic"])]
        described = await admin.describe_group(group_id)
        assert (described.group_state, described.members[0].group_instance_id) == ("Stable", "static")
        await refused(admin.delete_groups([group_id]), ErrorCode.NON_EMPTY_GROUP)
    await admin.remove_members(group_id, instance_ids=["static"], reason="gone")
    assert (await admin.describe_group(group_id)).group_state == "Empty"
    assert await admin.group_offsets(group_id) == {(name, 0): 1}
    await admin.alter_group_offsets(group_id, {(name, 0): 0})
    assert (await admin.committed_offsets(group_id))[name, 0].offset == 0
    await admin.delete_group_offsets(group_id, [(name, 0)])
    assert await admin.group_offsets(group_id) == {}
    await admin.alter_group_offsets(group_id, {(name, 0): 0})
    await admin.delete_groups([group_id])
    assert (await admin.describe_group(group_id)).group_state == "Dead"
    await refused(admin.delete_group_offsets(group_id, [("nowhere", 0)]), ErrorCode.GROUP_ID_NOT_FOUND)
    await refused(admin.describe_consumer_group(group_id), ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


async def records(admin: Admin, bootstrap: str) -> None:
    name = await new_topic(admin, retention_ms="-1")
    place = (name, 0)
    async with Producer(bootstrap) as producer:
        for n in range(10):
            await producer.send(name, b"v", timestamp_ms=1_700_000_000_000 + n)

    async def offset(timestamp: int) -> int | None:
        found = (await admin.list_offsets({place: timestamp}))[place]
        return None if found is None else found.offset

    wanted = (EARLIEST, LATEST, 1_700_000_000_004, MAX_TIMESTAMP)
    assert [await offset(timestamp) for timestamp in wanted] == [0, 10, 4, 9]
    assert await admin.delete_records({place: 4}) == {place: 4}
    assert await offset(EARLIEST) == 4
    await refused(admin.delete_records({place: 11}), ErrorCode.OFFSET_OUT_OF_RANGE)
    epoch = (await admin.describe_topics([name]))[0].partitions[0].leader_epoch
    assert await admin.end_offsets_of_epochs({place: epoch}) == {place: (epoch, 10)}
    await refused(admin.delete_records({("admin-nowhere", 0): 1}), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def cluster(admin: Admin, bootstrap: str) -> None:
    described = await admin.describe_cluster()
    assert described.cluster_id
    assert described.controller_id in described.brokers
    assert (await admin.api_versions())[ApiKey.FETCH] >= 13
    features = await admin.describe_features()
    assert features["metadata.version"].finalized > 0
    await refused(
        admin.update_features({"no.such.feature": 1}), ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST
    )
    quorum = await admin.describe_quorum()
    assert quorum.leader_id in [voter.replica_id for voter in quorum.current_voters]
    await refused(admin.unregister_broker(4711), ErrorCode.BROKER_ID_NOT_REGISTERED)
    nobody = UUID(int=4711)
    await refused(
        admin.add_raft_voter(4711, nobody, [("CONTROLLER", "localhost", 4711)]),
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
    )
    await refused(admin.remove_raft_voter(4711, nobody), ErrorCode.UNSUPPORTED_VERSION, ErrorCode.VOTER_NOT_FOUND)


async def replicas(admin: Admin, bootstrap: str) -> None:
    name = await new_topic(admin)
    (node,) = (await admin.describe_cluster()).brokers
    async with Producer(bootstrap) as producer:
        await (await producer.send(name, b"v" * 1000))
    (directory,) = (await admin.describe_log_dirs([(name, 0)]))[node]
    assert [(t.name, t.partitions[0].partition_size > 1000) for t in directory.topics] == [(name, True)]
    await admin.alter_replica_log_dirs(node, {(name, 0): directory.log_dir})
    await refused(admin.alter_replica_log_dirs(node, {(name, 0): "/no/such"}), ErrorCode.LOG_DIR_NOT_FOUND)
    await admin.alter_partition_reassignments({(name, 0): [node]})
    assert await admin.list_partition_reassignments() == {}
    assert await admin.list_partition_reassignments([(name, 0)]) == {}
    await refused(admin.alter_partition_reassignments({(name, 0): None}), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    await refused(admin.alter_partition_reassignments({(name, 0): [4711]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert await admin.elect_leaders(ElectionType.PREFERRED, [(name, 0)]) == set()
    assert await admin.elect_leaders(ElectionType.PREFERRED) == set()
    nowhere = admin.elect_leaders(ElectionType.UNCLEAN, [("admin-nowhere", 0)])
    await refused(nowhere, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def transactions(admin: Admin, bootstrap: str) -> None:
    name = await new_topic(admin)
    place = (name, 0)
    async with Producer(bootstrap, transactional_id=name) as producer:
        async with producer.transaction():
            await (await producer.send(name, b"v"))
            assert (await admin.describe_transaction(name)).transaction_state == "Ongoing"
            assert name in [found.transactional_id for found in await admin.list_transactions(states=["Ongoing"])]
            (state,) = (await admin.describe_producers([place]))[place]
            assert state.current_txn_start_offset == 0
        described = await admin.describe_transaction(name)
        assert described.transaction_state in ("PrepareCommit", "CompleteCommit")
        new_id, new_epoch = await admin.fence_producers(name)
        assert (new_id, new_epoch) > (described.producer_id, described.producer_epoch)
        with pytest.raises(BrokerError):
            async with producer.transaction():
                await producer.send(name, b"fenced")
    await refused(admin.describe_transaction("admin-nobody"), ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


async def quotas(admin: Admin, bootstrap: str) -> None:
    user = f"user-{uuid4().hex[:8]}"
    entity = {"user": user, "client-id": None}
    await admin.alter_client_quotas([QuotaAlteration(entity, {"producer_byte_rate": 1000.0})], validate_only=True)
    await admin.alter_client_quotas(
        [QuotaAlteration(entity, {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0})]
    )
    expected = [(entity, {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0})]

    async def is_known() -> bool:
        return await admin.describe_client_quotas({"user": user}) == expected

    async def is_gone() -> bool:
        return not await admin.describe_client_quotas({"user": user})

    await until(is_known)
    assert await admin.describe_client_quotas({"user": user, "client-id": ANY_NAME}) == expected
    assert await admin.describe_client_quotas({"user": user}, strict=True) == []
    removed = {"producer_byte_rate": None, "consumer_byte_rate": None}
    await admin.alter_client_quotas([QuotaAlteration(entity, removed)])
    await until(is_gone)
    wrong = admin.alter_client_quotas([QuotaAlteration(entity, {"no_such_rate": 1.0})])
    await refused(wrong, ErrorCode.INVALID_REQUEST)


async def security(admin: Admin, bootstrap: str) -> None:
    binding = AclBinding(AclResourceType.TOPIC, "t", "User:alice", AclOperation.READ)
    await refused(admin.create_acls([binding]), ErrorCode.SECURITY_DISABLED)
    await refused(admin.describe_acls(), ErrorCode.SECURITY_DISABLED)
    await refused(admin.delete_acls([AclFilter()]), ErrorCode.SECURITY_DISABLED)
    not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    await refused(admin.create_delegation_token(renewers=[("User", "bob")]), not_allowed)
    await refused(admin.renew_delegation_token(b"hmac"), not_allowed)
    await refused(admin.expire_delegation_token(b"hmac"), not_allowed)
    await refused(admin.describe_delegation_tokens(), not_allowed)


async def scram(admin: Admin, bootstrap: str) -> None:
    user = f"user-{uuid4().hex[:8]}"
    await admin.alter_scram_credentials([ScramUpsertion(user, ScramMechanism.SCRAM_SHA_512, b"secret", 8192)])

    async def is_known() -> bool:
        return user in await admin.describe_scram_credentials()

    await until(is_known)
    (credential,) = (await admin.describe_scram_credentials())[user]
    assert (credential.mechanism, credential.iterations) == (ScramMechanism.SCRAM_SHA_512, 8192)
    assert list(await admin.describe_scram_credentials([user])) == [user]
    await admin.alter_scram_credentials(deletions=[(user, ScramMechanism.SCRAM_SHA_512)])

    async def is_gone() -> bool:
        return not await is_known()

    await until(is_gone)
    missing = admin.alter_scram_credentials(deletions=[(user, ScramMechanism.SCRAM_SHA_512)])
    await refused(missing, ErrorCode.RESOURCE_NOT_FOUND)
    weak = admin.alter_scram_credentials([ScramUpsertion(user, ScramMechanism.SCRAM_SHA_256, b"secret", 10)])
    await refused(weak, ErrorCode.UNACCEPTABLE_CREDENTIAL)


SCENES: list[Scene] = [
    topics, configs, groups, records, cluster, replicas, transactions, quotas, security, scram
]  # fmt: skip
