"""Roles of a node, from process.roles and related keys."""

from __future__ import annotations

import pytest

from gregor.broker.config import BrokerConfig, ConfigError
from gregor.broker.config.roles import Voter, inter_broker_listener

COMBINED = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@kafka-1:9093",
}


def test_without_process_roles_a_node_is_broker_and_controller_of_its_own_cluster() -> None:
    roles = BrokerConfig().roles
    assert roles.is_alone
    assert roles.is_broker
    assert roles.is_controller


def test_a_combined_node_opens_its_controllers_listener() -> None:
    roles = BrokerConfig(COMBINED).roles
    assert (roles.is_broker, roles.is_controller, roles.controller) == (True, True, None)
    assert roles.controller_listener is not None
    assert roles.controller_listener.port == 9093
    assert not roles.is_alone


def test_with_an_incomplete_sasl_ssl_controller_listener_a_node_is_a_cluster_of_its_own() -> None:
    protocols = "CONTROLLER:SASL_SSL,PLAINTEXT:PLAINTEXT"
    assert BrokerConfig({**COMBINED, "listener.security.protocol.map": protocols}).roles.is_alone


def test_a_broker_follows_the_first_voter() -> None:
    settings = {**COMBINED, "node.id": "2", "controller.quorum.voters": "1@kafka-1:9093,2@kafka-2:9093,3@[::1]:9093"}
    roles = BrokerConfig(settings).roles
    assert (roles.is_broker, roles.is_controller) == (True, False)
    assert roles.controller == Voter(1, "kafka-1", 9093)
    assert roles.passed_over == (Voter(2, "kafka-2", 9093), Voter(3, "::1", 9093))
    assert roles.controller_listener is None


def test_a_bootstrap_server_gives_the_address_but_not_the_id_of_the_controller() -> None:
    settings = {
        "node.id": "4",
        "process.roles": "broker",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "kafka-1:9093",
    }
    assert BrokerConfig(settings).roles.controller == Voter(-1, "kafka-1", 9093)


def test_a_controller_needs_no_listener_for_clients() -> None:
    roles = BrokerConfig({**COMBINED, "process.roles": "controller", "listeners": "CONTROLLER://:9093"}).roles
    assert (roles.is_broker, roles.is_controller, roles.is_alone) == (False, True, False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"process.roles": "broker"}, "the node id 1 must not be included in the set of voters"),
        ({"node.id": "9"}, "the node id 9 must be included in the set of voters"),
        ({"process.roles": "broker", "controller.quorum.voters": ""}, "must contain a parseable set of controllers"),
        ({"controller.quorum.voters": "kafka-1:9093"}, "it must be of the form id@host:port"),
        (
            {
                "process.roles": "controller",
                "node.id": "2",
                "controller.quorum.voters": "1@a:1,2@b:2",
                "listeners": "CONTROLLER://:9093",
            },
            "do not start node 2",
        ),
        ({"process.roles": "boss"}, "Invalid value"),
    ],
)
def test_invalid_combinations_of_roles_voters_and_node_id_are_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig({**COMBINED, **changes})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "PLAINTEXT"),
        ({"listeners": "IN://:1,OUT://:2", "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT"}, "IN"),
        (
            {
                "listeners": "IN://:1,OUT://:2",
                "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
                "inter.broker.listener.name": "OUT",
            },
            "OUT",
        ),
    ],
)
def test_the_inter_broker_listener_is_the_configured_one_or_the_first(settings: dict[str, str], expected: str) -> None:
    assert inter_broker_listener(BrokerConfig(settings)) == expected
