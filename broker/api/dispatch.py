"""From a frame to the handler of its API, and from the handler's response to the bytes of an answer.

One table, `APIS`, says what this broker serves. Dispatch looks requests up in it, and ApiVersions is computed from it;
where the feature `transaction.version` is finalized at 2, some versions more (`with_transactions_v2`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from ...protocol.apis import (
    AnyApiKey,
    ApiKey,
    GregorApiKey,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)
from ...protocol.codec import decode, encode_parts
from ...protocol.errors import BrokerError, DecodeError, ErrorCode
from ...protocol.schema import Message
from ..server.connection import UnanswerableError
from ..server.late_answer import LateAnswer
from ..server.parts import Answer
from ..server.request_header import FIXED, Header, parse_header, skip_tagged_fields
from ..server.requests import ClientConnection, ClientGoneError, RequestContext
from .handlers import (
    api_versions,
    append_numbered,
    clients,
    cluster,
    configs,
    consumer_groups,
    delete_records,
    fetch,
    fetch_now,
    find_coordinator,
    groups,
    list_offsets,
    log_directories,
    metadata,
    offset_for_leader_epoch,
    offsets,
    produce,
    produce_now,
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

if TYPE_CHECKING:
    from ..app.broker import Broker

logger = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Any, RequestContext], Awaitable[Any]]
"""Typed request in, typed response out; None where the client expects no answer."""


ShortCut: TypeAlias = Callable[["Broker", memoryview, int, int, int], bytes | LateAnswer | None]
"""Answers common requests of an API at once, from their bytes: broker, frame, position of the body, version and
correlation id in; the frame of the answer out (perhaps late), empty where none is expected, None where the handler must
be asked."""


class Api(NamedTuple):
    """What is served of one API."""

    key: AnyApiKey
    min_version: int
    max_version: int
    handler: Handler
    short_cut: ShortCut | None = None
    is_advertised: bool = True
    """Whether ApiVersions names it; telemetry is answered, but like a Kafka without a receiver we do not ask for it."""
    max_version_with_transactions_v2: int | None = None
    """The highest version once `transaction.version` is finalized at 2 (KIP-890), if it is another one."""


APIS: Mapping[int, Api] = {
    api.key: api
    for api in (
        Api(
            ApiKey.PRODUCE,
            0,
            11,
            produce.handle_produce,
            produce_now.produce_now,
            max_version_with_transactions_v2=12,
        ),
        Api(ApiKey.FETCH, 0, 17, fetch.handle_fetch, fetch_now.fetch_now),
        Api(ApiKey.LIST_OFFSETS, 0, 9, list_offsets.handle_list_offsets),
        Api(ApiKey.METADATA, 0, 12, metadata.handle_metadata),
        Api(ApiKey.OFFSET_COMMIT, 0, 9, offsets.handle_offset_commit),
        Api(ApiKey.OFFSET_FETCH, 0, 9, offsets.handle_offset_fetch),
        Api(ApiKey.FIND_COORDINATOR, 0, 6, find_coordinator.handle_find_coordinator),
        Api(ApiKey.JOIN_GROUP, 0, 9, groups.handle_join_group),
        Api(ApiKey.HEARTBEAT, 0, 4, groups.handle_heartbeat),
        Api(ApiKey.LEAVE_GROUP, 0, 5, groups.handle_leave_group),
        Api(ApiKey.SYNC_GROUP, 0, 5, groups.handle_sync_group),
        Api(ApiKey.DESCRIBE_GROUPS, 0, 5, groups.handle_describe_groups),
        Api(ApiKey.LIST_GROUPS, 0, 5, groups.handle_list_groups),
        Api(ApiKey.SASL_HANDSHAKE, 0, 1, security.handle_sasl_handshake),
        Api(ApiKey.API_VERSIONS, 0, 4, api_versions.handle_api_versions),
        Api(ApiKey.CREATE_TOPICS, 0, 7, topics.handle_create_topics),
        Api(ApiKey.DELETE_TOPICS, 0, 6, topics.handle_delete_topics),
        Api(ApiKey.DELETE_RECORDS, 0, 2, delete_records.handle_delete_records),
        Api(ApiKey.INIT_PRODUCER_ID, 0, 5, producers.handle_init_producer_id),
        Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 0, 4, offset_for_leader_epoch.handle_offset_for_leader_epoch),
        Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, transactions.handle_add_partitions_to_txn),
        Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, transactions.handle_add_offsets_to_txn),
        Api(ApiKey.END_TXN, 0, 4, transactions.handle_end_txn, max_version_with_transactions_v2=5),
        Api(ApiKey.WRITE_TXN_MARKERS, 0, 1, transaction_admin.handle_write_txn_markers),
        Api(ApiKey.TXN_OFFSET_COMMIT, 0, 4, offsets.handle_txn_offset_commit, max_version_with_transactions_v2=5),
        Api(ApiKey.DESCRIBE_ACLS, 0, 3, security.handle_describe_acls),
        Api(ApiKey.CREATE_ACLS, 0, 3, security.handle_create_acls),
        Api(ApiKey.DELETE_ACLS, 0, 3, security.handle_delete_acls),
        Api(ApiKey.DESCRIBE_CONFIGS, 0, 4, configs.handle_describe_configs),
        Api(ApiKey.ALTER_CONFIGS, 0, 2, configs.handle_alter_configs),
        Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 0, 2, log_directories.handle_alter_replica_log_dirs),
        Api(ApiKey.DESCRIBE_LOG_DIRS, 0, 4, log_directories.handle_describe_log_dirs),
        Api(ApiKey.SASL_AUTHENTICATE, 0, 2, security.handle_sasl_authenticate),
        Api(ApiKey.CREATE_PARTITIONS, 0, 3, topics.handle_create_partitions),
        Api(ApiKey.CREATE_DELEGATION_TOKEN, 0, 3, security.handle_create_delegation_token),
        Api(ApiKey.RENEW_DELEGATION_TOKEN, 0, 2, security.handle_renew_delegation_token),
        Api(ApiKey.EXPIRE_DELEGATION_TOKEN, 0, 2, security.handle_expire_delegation_token),
        Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, 0, 3, security.handle_describe_delegation_token),
        Api(ApiKey.DELETE_GROUPS, 0, 2, groups.handle_delete_groups),
        Api(ApiKey.ELECT_LEADERS, 0, 2, replicas.handle_elect_leaders),
        Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, configs.handle_incremental_alter_configs),
        Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 0, replicas.handle_alter_partition_reassignments),
        Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, replicas.handle_list_partition_reassignments),
        Api(ApiKey.OFFSET_DELETE, 0, 0, offsets.handle_offset_delete),
        Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, quotas.handle_describe_client_quotas),
        Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, quotas.handle_alter_client_quotas),
        Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, security.handle_describe_user_scram_credentials),
        Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, security.handle_alter_user_scram_credentials),
        Api(ApiKey.DESCRIBE_QUORUM, 0, 2, cluster.handle_describe_quorum),
        Api(ApiKey.UPDATE_FEATURES, 0, 1, cluster.handle_update_features),
        Api(ApiKey.DESCRIBE_CLUSTER, 0, 1, cluster.handle_describe_cluster),
        Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, transaction_admin.handle_describe_producers),
        Api(ApiKey.UNREGISTER_BROKER, 0, 0, cluster.handle_unregister_broker),
        Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, transaction_admin.handle_describe_transactions),
        Api(ApiKey.LIST_TRANSACTIONS, 0, 1, transaction_admin.handle_list_transactions),
        Api(
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, telemetry.handle_get_telemetry_subscriptions, is_advertised=False
        ),
        Api(ApiKey.PUSH_TELEMETRY, 0, 0, telemetry.handle_push_telemetry, is_advertised=False),
        Api(ApiKey.LIST_CLIENT_METRICS_RESOURCES, 0, 0, telemetry.handle_list_client_metrics_resources),
        Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, consumer_groups.handle_consumer_group_heartbeat),
        Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 0, consumer_groups.handle_consumer_group_describe),
        Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, topic_partitions.handle_describe_topic_partitions),
        Api(ApiKey.ADD_RAFT_VOTER, 0, 0, voters.handle_add_raft_voter),
        Api(ApiKey.REMOVE_RAFT_VOTER, 0, 0, voters.handle_remove_raft_voter),
        Api(GregorApiKey.DESCRIBE_CLIENTS, 0, 0, clients.handle_describe_clients, is_advertised=False),
        Api(GregorApiKey.APPEND_NUMBERED, 0, 0, append_numbered.handle_append_numbered, is_advertised=False),
    )
}


def _always(request: Any) -> bool:
    return True


IS_FOR_CONTROLLER: Mapping[int, Callable[[Any], bool]] = {
    **dict.fromkeys(
        (
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.CREATE_ACLS,
            ApiKey.DELETE_ACLS,
            ApiKey.CREATE_DELEGATION_TOKEN,
            ApiKey.RENEW_DELEGATION_TOKEN,
            ApiKey.EXPIRE_DELEGATION_TOKEN,
            ApiKey.ELECT_LEADERS,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            ApiKey.ALTER_CLIENT_QUOTAS,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            ApiKey.DESCRIBE_QUORUM,
            ApiKey.UPDATE_FEATURES,
            ApiKey.UNREGISTER_BROKER,
            ApiKey.ADD_RAFT_VOTER,
            ApiKey.REMOVE_RAFT_VOTER,
        ),
        _always,
    ),
    ApiKey.ALTER_CONFIGS: configs.changes_metadata,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.changes_metadata,
}
"""Which requests only the controller may answer: other nodes forward them."""


WRITES_AS_COORDINATOR = frozenset(
    {
        ApiKey.OFFSET_COMMIT,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.LEAVE_GROUP,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_TRANSACTIONS,
    }
)
"""Requests that write to internal topics or tell of it: among several brokers their answers wait for the followers."""


def with_transactions_v2(apis: Mapping[int, Api] = APIS) -> Mapping[int, Api]:
    """What is served of the APIs where transactions V2 are switched on."""
    return {
        key: api if (highest := api.max_version_with_transactions_v2) is None else api._replace(max_version=highest)
        for key, api in apis.items()
    }


CORRELATION_ID = Struct(">i")
NO_TAGGED_FIELDS = b"\0"


class Dispatcher:
    """Answers request frames for one broker (the `Responder` of its connections)."""

    def __init__(self, broker: Broker, apis: Mapping[int, Api] = APIS) -> None:
        self._broker = broker
        self.serve(apis)

    def serve(self, apis: Mapping[int, Api]) -> None:
        """From now on answer requests of these APIs and versions."""
        self._apis = apis
        self.offered = {api.key: (api.min_version, api.max_version) for api in apis.values() if api.is_advertised}
        """Lowest and highest version of what ApiVersions names."""
        self._short_cuts = {
            (api.key, version): api.short_cut
            for api in apis.values()
            if api.short_cut is not None
            for version in range(api.min_version, api.max_version + 1)
        }

    def answer_now(self, frame: memoryview, client: ClientConnection) -> bytes | LateAnswer | None:
        """The whole frame of the answer where the API has a short cut for such a request; see `ShortCut`."""
        broker = self._broker
        if len(frame) < FIXED.size or broker.quotas.is_active:
            return None
        key, version, correlation_id, client_id_length = FIXED.unpack_from(frame)
        short_cut = self._short_cuts.get((key, version))
        if short_cut is None:
            return None
        position = FIXED.size + max(client_id_length, 0)
        if bytes(frame[FIXED.size : position]) != client.client_id_bytes:
            return None
        answer = short_cut(broker, frame, position, version, correlation_id)
        if answer is not None:
            client.request_counts[key, version] += 1
        return answer

    async def answer(self, frame: memoryview, client: ClientConnection) -> Answer | None:
        """Answer one request; None where the client expects no answer.

        Raises UnanswerableError for an API or version that we lack and for what has no error field, DecodeError for
        malformed bytes, ClientGoneError.
        """
        header = parse_header(frame)
        api = self._apis.get(header.api_key)
        if api is None:
            raise UnanswerableError(f"unknown API key {header.api_key}")
        if api.min_version <= header.api_version <= api.max_version:
            return await self._handle(api, header, frame, client)
        if api.key is ApiKey.API_VERSIONS:
            refusal = api_versions.unsupported_version(api.min_version, api.max_version)
            return _answer(refusal, api.key, 0, header.correlation_id)
        raise UnanswerableError(f"unsupported version {header.api_version} of {api.key.name}")

    async def _handle(self, api: Api, header: Header, frame: memoryview, client: ClientConnection) -> Answer | None:
        version = header.api_version
        position = header.end
        if request_header_version(api.key, version) >= 2:
            position = skip_tagged_fields(frame, position)
        request = decode(request_class(api.key), frame[position:], version)
        if header.client_id != client.client_id:
            self._broker.clients.client_id_changed(client, header.client_id)
            client.client_id_bytes = bytes(frame[FIXED.size : header.end])
        client.request_counts[api.key, version] += 1
        context = RequestContext(self._broker, client, api.key, version, header.correlation_id, header.client_id)
        responding = self.respond(api, request, context)
        quotas = self._broker.quotas
        if quotas.is_active:
            response = await quotas.respond(responding, request, context, len(frame))
        else:
            response = await responding
        if context.closing:
            raise UnanswerableError(f"{api.key.name} v{version} failed and expects no answer")
        return None if response is None else _answer(response, api.key, version, header.correlation_id)

    async def respond(self, api: Api, request: Message, context: RequestContext) -> Message | None:
        """Run the handler, or ask the controller; what they raise becomes the response's own error field, if any."""
        membership = self._broker.membership
        responding = api.handler if membership is None else membership.handler_for(api, request)
        try:
            return cast(Message | None, await responding(request, context))
        except (UnanswerableError, ClientGoneError, DecodeError):
            raise
        except BrokerError as error:
            return _failure(api, error.code, error.message)
        except Exception:
            logger.exception("%s v%d on %s failed", api.key.name, context.api_version, context.connection_id)
            return _failure(api, ErrorCode.UNKNOWN_SERVER_ERROR, None)


def _failure(api: Api, code: ErrorCode, message: str | None) -> Message:
    """A response that only says what went wrong. Raises UnanswerableError where the API has no field for that."""
    response: Any = response_class(api.key)()
    if not hasattr(response, "error_code"):
        raise UnanswerableError(f"{api.key.name} failed with {code.name}, which its response cannot tell")
    response.error_code = code
    if message is not None and hasattr(response, "error_message"):
        response.error_message = message
    return cast(Message, response)


def _answer(response: Message, key: AnyApiKey, version: int, correlation_id: int) -> Answer:
    header = CORRELATION_ID.pack(correlation_id)
    if response_header_version(key, version) >= 1:
        header += NO_TAGGED_FIELDS
    # Whatever a handler puts into a response knows how to send itself, not only its size.
    return cast(Answer, [header, *encode_parts(response, version)])
