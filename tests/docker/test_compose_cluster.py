"""The compose file with three brokers: its settings make one cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gregor.broker.config import BrokerConfig
from gregor.broker.config.roles import Voter, inter_broker_listener
from tests.docker.test_properties_from_environment import script

DEFAULT = re.compile(r"\$\{\w+:-(\d+)\}")
"""A variable of the compose file, and its value where it is not set."""
COMPOSE = Path(__file__).resolve().parents[2] / "docker" / "compose-cluster.yaml"


def test_the_nodes_of_the_compose_file_are_one_controller_and_three_brokers() -> None:
    yaml = pytest.importorskip("yaml", reason="no PyYAML here: `pip install .[faults]` has it")
    services = yaml.safe_load(DEFAULT.sub(r"\1", COMPOSE.read_text()))["services"]
    configs = []
    for name, service in services.items():
        environment = {key: str(value) for key, value in service["environment"].items()}
        config = BrokerConfig(script.settings(environment))
        assert config.notices() == ([], [])
        assert f"PLAINTEXT://{name}:9092" in config.advertised_listeners
        assert inter_broker_listener(config) == "PLAINTEXT"
        configs.append(config)
    assert [config.node_id for config in configs] == [1, 2, 3]
    assert [config.roles.is_controller for config in configs] == [True, False, False]
    assert {config.roles.controller for config in configs[1:]} == {Voter(1, "kafka-1", 9093)}
    assert configs[0].roles.controller_listener is not None
    assert configs[0].roles.controller_listener.port == 9093
