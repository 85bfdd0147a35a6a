"""Limits on connections that an administrator changes while clients wait for a slot."""

from __future__ import annotations

from pathlib import Path

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from gregor.protocol.messages.metadata import MetadataRequest
from tests.broker_process import running_broker
from tests.wire import Wire

BROKER = 4
"""The resource type of a broker's configuration."""


def test_a_raised_max_connections_takes_effect_while_all_connections_stay_open(tmp_path: Path) -> None:
    """The administrator's own connection may be the one that holds the last slot."""
    with running_broker(tmp_path, "max.connections=1") as broker, Wire(broker.address) as administrator:
        administrator.ask(ApiKey.METADATA, 1, MetadataRequest(topics=[]))
        with Wire(broker.address) as waiting:
            waiting.send(ApiKey.METADATA, 1, MetadataRequest(topics=[]))
            resource = AlterConfigsResource(
                resource_type=BROKER,
                resource_name="",
                configs=[AlterableConfig(name="max.connections", config_operation=0, value="2")],
            )
            changed = administrator.ask(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=[resource])
            )
            assert changed.responses[0].error_code == ErrorCode.NONE
            assert waiting.answer(ApiKey.METADATA, 1).brokers
