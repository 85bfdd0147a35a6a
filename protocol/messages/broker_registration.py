"""BrokerRegistration (key 62): a broker that starts tells the controller who and where it is (KIP-631).

Spoken between brokers and controllers only. The answer's `broker_epoch` names this life of the broker until it ends.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    NO_UUID,
    SENDER,
    Bool,
    BrokerId,
    ErrorCodeNumber,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uint16,
    Uuid,
    Versions,
)


class Listener(Struct):
    name: String = ""
    host: String = ""
    port: Uint16 = 0
    security_protocol: Int16 = 0


class Feature(Struct):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class BrokerRegistrationRequest(Message, versions="0-4", flexible="0+"):
    broker_id: Annotated[BrokerId, SENDER] = 0
    cluster_id: String = ""
    incarnation_id: Uuid = NO_UUID
    listeners: list[Listener] = []
    features: list[Feature] = []
    rack: String | None = ""
    is_migrating_zk_broker: Annotated[Bool, Versions("1+")] = False
    log_dirs: Annotated[list[Uuid], Versions("2+")] = []
    previous_broker_epoch: Annotated[Int64, Versions("3+")] = -1


class BrokerRegistrationResponse(Message, versions="0-4", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    broker_epoch: Int64 = -1
