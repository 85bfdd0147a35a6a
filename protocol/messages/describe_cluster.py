"""DescribeCluster (key 60): the brokers, the controller and the cluster id (KIP-700).

v1 can ask for the controllers' endpoints instead (KIP-919), v2 for fenced brokers as well (KIP-1073).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import Bool, BrokerId, ErrorCodeNumber, Int8, Int32, Message, String, Struct, Versions


class DescribeClusterRequest(Message, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, Versions("1+")] = 1
    include_fenced_brokers: Annotated[Bool, Versions("2+")] = False


class DescribeClusterBroker(Struct):
    broker_id: BrokerId = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
    is_fenced: Annotated[Bool, Versions("2+")] = False


class DescribeClusterResponse(Message, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = None
    endpoint_type: Annotated[Int8, Versions("1+")] = 1
    cluster_id: String = ""
    controller_id: BrokerId = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -0x80000000
