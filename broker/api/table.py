"""The table of APIs: each row holds an API's versions and handler, which node answers it, and what its answer waits
for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...protocol.acls import AclOperation
from ...protocol.apis import ApiKey, GregorApiKey
from .contract import Api, always
from .deferred_handlers import DeferredHandlers
from .handlers import api_versions, fetch, metadata, produce
from .rights import on_cluster, on_group, on_transactional_id

if TYPE_CHECKING:
    from .handlers import (
        acls,
        append_numbered,
        clients,
        cluster,
        configs,
        consumer_groups,
        delete_records,
        find_coordinator,
        groups,
        list_offsets,
        log_directories,
        offset_for_leader_epoch,
        offsets,
        producers,
        quotas,
        replicas,
        security,
        telemetry,
        topic_partitions,
        topics,
        transaction_admin,
        transactions,
        voters,
    )
    from .handlers import (
        delegation_tokens as tokens,
    )
else:
    acls = DeferredHandlers("acls")
    append_numbered = DeferredHandlers("append_numbered")
    clients = DeferredHandlers("clients")
    cluster = DeferredHandlers("cluster")
    configs = DeferredHandlers("configs")
    consumer_groups = DeferredHandlers("consumer_groups")
    delete_records = DeferredHandlers("delete_records")
    find_coordinator = DeferredHandlers("find_coordinator")
    groups = DeferredHandlers("groups")
    list_offsets = DeferredHandlers("list_offsets")
    log_directories = DeferredHandlers("log_directories")
    offset_for_leader_epoch = DeferredHandlers("offset_for_leader_epoch")
    offsets = DeferredHandlers("offsets")
    producers = DeferredHandlers("producers")
    quotas = DeferredHandlers("quotas")
    replicas = DeferredHandlers("replicas")
    security = DeferredHandlers("security")
    telemetry = DeferredHandlers("telemetry")
    topic_partitions = DeferredHandlers("topic_partitions")
    topics = DeferredHandlers("topics")
    transaction_admin = DeferredHandlers("transaction_admin")
    transactions = DeferredHandlers("transactions")
    voters = DeferredHandlers("voters")
    tokens = DeferredHandlers("delegation_tokens")

READ, WRITE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)

APIS: Mapping[int, Api] = {
    api.key: api
    for api in (
        Api(
            ApiKey.PRODUCE,
            0,
            11,
            produce.handle_produce,
            is_pipelined=True,
            max_version_with_transactions_v2=12,
            abortable_since=11,
            transactions_v2_since=12,
            rights=(on_transactional_id(WRITE, if_=produce.uses_transactional_id),),
            topic_operations=(WRITE,),
        ),
        Api(ApiKey.FETCH, 0, 17, fetch.handle_fetch, changes_nothing=True),
        Api(
            ApiKey.LIST_OFFSETS,
            0,
            9,
            list_offsets.handle_list_offsets,
            changes_nothing=True,
            topic_operations=(DESCRIBE,),
        ),
        Api(ApiKey.METADATA, 0, 12, metadata.handle_metadata, changes_nothing=True),
        Api(
            ApiKey.OFFSET_COMMIT,
            0,
            9,
            offsets.handle_offset_commit,
            waits_for_replicas=groups.group_of,
            rights=(on_group(READ),),
            topic_operations=(READ,),
        ),
        Api(ApiKey.OFFSET_FETCH, 0, 9, offsets.handle_offset_fetch, changes_nothing=True),
        Api(ApiKey.FIND_COORDINATOR, 0, 6, find_coordinator.handle_find_coordinator, changes_nothing=True),
        Api(ApiKey.JOIN_GROUP, 0, 9, groups.handle_join_group, waits_for_replicas=groups.group_of),
        Api(ApiKey.HEARTBEAT, 0, 4, groups.handle_heartbeat, rights=(on_group(READ),)),
        Api(
            ApiKey.LEAVE_GROUP,
            0,
            5,
            groups.handle_leave_group,
            waits_for_replicas=groups.group_of,
            rights=(on_group(READ),),
        ),
        Api(ApiKey.SYNC_GROUP, 0, 5, groups.handle_sync_group, waits_for_replicas=groups.group_of),
        Api(ApiKey.DESCRIBE_GROUPS, 0, 5, groups.handle_describe_groups, changes_nothing=True),
        Api(ApiKey.LIST_GROUPS, 0, 5, groups.handle_list_groups, changes_nothing=True),
        Api(ApiKey.SASL_HANDSHAKE, 0, 1, security.handle_sasl_handshake),
        Api(ApiKey.API_VERSIONS, 0, 4, api_versions.handle_api_versions, changes_nothing=True),
        Api(ApiKey.CREATE_TOPICS, 0, 7, topics.handle_create_topics, is_for_controller=always, strict_quota_since=6),
        Api(ApiKey.DELETE_TOPICS, 0, 6, topics.handle_delete_topics, is_for_controller=always, strict_quota_since=5),
        Api(ApiKey.DELETE_RECORDS, 0, 2, delete_records.handle_delete_records, topic_operations=(DELETE,)),
        Api(
            ApiKey.INIT_PRODUCER_ID,
            0,
            5,
            producers.handle_init_producer_id,
            waits_for_replicas=transactions.transaction_of,
        ),
        Api(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            0,
            4,
            offset_for_leader_epoch.handle_offset_for_leader_epoch,
            changes_nothing=True,
        ),
        Api(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            0,
            5,
            transactions.handle_add_partitions_to_txn,
            waits_for_replicas=transactions.transactions_of,
        ),
        Api(
            ApiKey.ADD_OFFSETS_TO_TXN,
            0,
            4,
            transactions.handle_add_offsets_to_txn,
            waits_for_replicas=transactions.transaction_of,
            rights=(
                on_transactional_id(WRITE),
                on_group(READ),
            ),
        ),
        Api(
            ApiKey.END_TXN,
            0,
            4,
            transactions.handle_end_txn,
            max_version_with_transactions_v2=5,
            waits_for_replicas=transactions.transaction_of,
            rights=(on_transactional_id(WRITE),),
        ),
        Api(
            ApiKey.WRITE_TXN_MARKERS,
            0,
            1,
            transaction_admin.handle_write_txn_markers,
            rights=(on_cluster(ALTER, CLUSTER_ACTION),),
        ),
        Api(
            ApiKey.TXN_OFFSET_COMMIT,
            0,
            4,
            offsets.handle_txn_offset_commit,
            max_version_with_transactions_v2=5,
            waits_for_replicas=groups.group_of,
            abortable_since=4,
            transactions_v2_since=5,
            rights=(
                on_transactional_id(WRITE),
                on_group(READ),
            ),
            topic_operations=(READ,),
        ),
        Api(
            ApiKey.DESCRIBE_ACLS,
            0,
            3,
            acls.handle_describe_acls,
            is_for_controller_tools=True,
            changes_nothing=True,
            rights=(on_cluster(DESCRIBE),),
        ),
        Api(ApiKey.CREATE_ACLS, 0, 3, acls.handle_create_acls, is_for_controller=always, rights=(on_cluster(ALTER),)),
        Api(ApiKey.DELETE_ACLS, 0, 3, acls.handle_delete_acls, is_for_controller=always, rights=(on_cluster(ALTER),)),
        Api(
            ApiKey.DESCRIBE_CONFIGS,
            0,
            4,
            configs.handle_describe_configs,
            is_for_controller_tools=True,
            changes_nothing=True,
        ),
        Api(
            ApiKey.ALTER_CONFIGS,
            0,
            2,
            configs.handle_alter_configs,
            is_for_controller=configs.changes_metadata,
            checked_before_forwarding=configs.refused_changes,
        ),
        Api(
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            0,
            2,
            log_directories.handle_alter_replica_log_dirs,
            rights=(on_cluster(ALTER),),
        ),
        Api(
            ApiKey.DESCRIBE_LOG_DIRS,
            0,
            4,
            log_directories.handle_describe_log_dirs,
            changes_nothing=True,
        ),
        Api(ApiKey.SASL_AUTHENTICATE, 0, 2, security.handle_sasl_authenticate),
        Api(
            ApiKey.CREATE_PARTITIONS,
            0,
            3,
            topics.handle_create_partitions,
            is_for_controller=always,
            strict_quota_since=3,
        ),
        Api(
            ApiKey.CREATE_DELEGATION_TOKEN,
            0,
            3,
            tokens.handle_create_delegation_token,
            is_for_controller=always,
        ),
        Api(
            ApiKey.RENEW_DELEGATION_TOKEN,
            0,
            2,
            tokens.handle_renew_delegation_token,
            is_for_controller=always,
        ),
        Api(
            ApiKey.EXPIRE_DELEGATION_TOKEN,
            0,
            2,
            tokens.handle_expire_delegation_token,
            is_for_controller=always,
        ),
        Api(
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
            0,
            3,
            tokens.handle_describe_delegation_token,
            changes_nothing=True,
        ),
        Api(ApiKey.DELETE_GROUPS, 0, 2, groups.handle_delete_groups, waits_for_replicas=groups.groups_to_delete),
        Api(
            ApiKey.ELECT_LEADERS,
            0,
            2,
            replicas.handle_elect_leaders,
            is_for_controller=always,
            rights=(on_cluster(ALTER),),
            repeats_refusals=True,
        ),
        Api(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            0,
            1,
            configs.handle_incremental_alter_configs,
            is_for_controller=configs.changes_metadata,
            checked_before_forwarding=configs.refused_changes,
        ),
        Api(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            0,
            0,
            replicas.handle_alter_partition_reassignments,
            is_for_controller=always,
            rights=(on_cluster(ALTER),),
            repeats_refusals=True,
        ),
        Api(
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            0,
            0,
            replicas.handle_list_partition_reassignments,
            is_for_controller=always,
            changes_nothing=True,
            rights=(on_cluster(DESCRIBE),),
        ),
        Api(
            ApiKey.OFFSET_DELETE,
            0,
            0,
            offsets.handle_offset_delete,
            waits_for_replicas=groups.group_of,
            rights=(on_group(DELETE),),
            topic_operations=(READ,),
        ),
        Api(
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            0,
            1,
            quotas.handle_describe_client_quotas,
            changes_nothing=True,
        ),
        Api(
            ApiKey.ALTER_CLIENT_QUOTAS,
            0,
            1,
            quotas.handle_alter_client_quotas,
            is_for_controller=always,
            rights=(on_cluster(ALTER_CONFIGS),),
        ),
        Api(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            0,
            0,
            security.handle_describe_user_scram_credentials,
            changes_nothing=True,
        ),
        Api(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            0,
            0,
            security.handle_alter_user_scram_credentials,
            is_for_controller=always,
            rights=(on_cluster(ALTER),),
        ),
        Api(
            ApiKey.DESCRIBE_QUORUM,
            0,
            2,
            cluster.handle_describe_quorum,
            is_for_controller=always,
            changes_nothing=True,
            rights=(on_cluster(DESCRIBE),),
        ),
        Api(
            ApiKey.UPDATE_FEATURES,
            0,
            1,
            cluster.handle_update_features,
            is_for_controller=always,
            rights=(on_cluster(ALTER),),
        ),
        Api(ApiKey.DESCRIBE_CLUSTER, 0, 1, cluster.handle_describe_cluster, changes_nothing=True),
        Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, transaction_admin.handle_describe_producers, changes_nothing=True),
        Api(
            ApiKey.UNREGISTER_BROKER,
            0,
            0,
            cluster.handle_unregister_broker,
            is_for_controller=always,
            rights=(on_cluster(ALTER),),
        ),
        Api(
            ApiKey.DESCRIBE_TRANSACTIONS,
            0,
            0,
            transaction_admin.handle_describe_transactions,
            waits_for_replicas=transaction_admin.transactions_of,
            changes_nothing=True,
        ),
        Api(ApiKey.LIST_TRANSACTIONS, 0, 1, transaction_admin.handle_list_transactions, changes_nothing=True),
        Api(
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, telemetry.handle_get_telemetry_subscriptions, is_advertised=False
        ),
        Api(ApiKey.PUSH_TELEMETRY, 0, 0, telemetry.handle_push_telemetry, is_advertised=False),
        Api(
            ApiKey.LIST_CLIENT_METRICS_RESOURCES,
            0,
            0,
            telemetry.handle_list_client_metrics_resources,
            changes_nothing=True,
            rights=(on_cluster(DESCRIBE_CONFIGS),),
        ),
        Api(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            0,
            1,
            consumer_groups.handle_consumer_group_heartbeat,
            waits_for_replicas=groups.group_of,
        ),
        Api(
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            0,
            0,
            consumer_groups.handle_consumer_group_describe,
            waits_for_replicas=consumer_groups.groups_of,
        ),
        Api(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            0,
            topic_partitions.handle_describe_topic_partitions,
            changes_nothing=True,
        ),
        Api(
            ApiKey.ADD_RAFT_VOTER,
            0,
            0,
            voters.handle_add_raft_voter,
            is_for_controller=always,
            rights=(on_cluster(ALTER),),
        ),
        Api(
            ApiKey.REMOVE_RAFT_VOTER,
            0,
            0,
            voters.handle_remove_raft_voter,
            is_for_controller=always,
            rights=(on_cluster(ALTER),),
        ),
        Api(
            GregorApiKey.DESCRIBE_CLIENTS,
            0,
            0,
            clients.handle_describe_clients,
            is_advertised=False,
            changes_nothing=True,
            rights=(on_cluster(DESCRIBE),),
        ),
        Api(
            GregorApiKey.APPEND_NUMBERED,
            0,
            0,
            append_numbered.handle_append_numbered,
            is_advertised=False,
            topic_operations=(
                WRITE,
                ALTER,
            ),
        ),
    )
}
"""The APIs of this broker by key. ApiVersions, forwarding and the wait for replicas are computed from these rows."""


def with_transactions_v2(apis: Mapping[int, Api] = APIS) -> Mapping[int, Api]:
    """Return the table of APIs with the versions that transactions V2 add."""
    return {
        key: api if (highest := api.max_version_with_transactions_v2) is None else api._replace(max_version=highest)
        for key, api in apis.items()
    }
