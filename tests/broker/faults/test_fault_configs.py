"""Rules as dynamic configurations, from a file and in server.properties: set, removed, refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import MappingProxyType

import pytest

from gregor.broker.config import BrokerConfig, ConfigError
from gregor.broker.faults.injection import FaultInjection
from gregor.broker.faults.rule_file import read_rule_file
from gregor.broker.faults.rule_syntax import FaultRuleError
from gregor.broker.reporting.metric_families import broker_families
from gregor.client.admin import Admin, AlterOperation, ResourceType
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.storage.clock import ManualClock
from tests.broker.faults.faulty_broker import FaultyBroker, produce

RULE = "gregor.fault.rule.moved"
MOVED = "api=Produce error=NOT_LEADER_OR_FOLLOWER"
ORDERS = ("orders", 0)
ENABLED = MappingProxyType({"gregor.fault.injection.enable": "true"})


def admin_of(faulty: FaultyBroker) -> Admin:
    return Admin(f"127.0.0.1:{faulty.broker.services.serving.listening[0].port}")


@pytest.mark.parametrize("target", ["", "1"])
async def test_any_admin_client_sets_a_rule_and_takes_it_back(faulty: FaultyBroker, target: str) -> None:
    wire = await faulty.connect()
    async with admin_of(faulty) as admin:
        await admin.alter_configs(ResourceType.BROKER, target, [(AlterOperation.SET, RULE, MOVED)])
        assert await produce(wire, ORDERS) == {ORDERS: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        (entry,) = await admin.describe_configs(ResourceType.BROKER, "1", [RULE])
        assert (entry.value, entry.config_source, entry.read_only) == (MOVED, 2 if target else 3, False)
        await admin.alter_configs(ResourceType.BROKER, target, [(AlterOperation.DELETE, RULE, None)])
        assert await produce(wire, ORDERS) == {ORDERS: 0}


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (RULE, "api=Produse stall", "api=Produse: Kafka has no such API; did you mean Produce?"),
        (RULE, "", "and this rule has none"),
        ("gregor.fault.rule.", MOVED, "a rule's name is"),
        ("gregor.fault.rule.a b", MOVED, "a rule's name is"),
        ("gregor.fault.rules", MOVED, "Unknown configuration gregor.fault.rules"),
    ],
)
async def test_a_bad_rule_is_an_invalid_config_and_changes_nothing(
    faulty: FaultyBroker, key: str, value: str, says: str
) -> None:
    wire = await faulty.connect()
    async with admin_of(faulty) as admin:
        with pytest.raises(BrokerError) as refusal:
            await admin.alter_configs(
                ResourceType.BROKER, "", [(AlterOperation.SET, RULE + "2", MOVED), (AlterOperation.SET, key, value)]
            )
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    assert says in str(refusal.value.message)
    assert await produce(wire, ORDERS) == {ORDERS: 0}


@pytest.mark.parametrize("properties", [{"gregor.fault.injection.enable": "false"}])
async def test_a_broker_without_fault_injection_refuses_fault_rules(faulty: FaultyBroker) -> None:
    assert faulty.broker.services.faults is None
    async with admin_of(faulty) as admin:
        for key, value in ((RULE, MOVED), ("gregor.fault.clock.offset.ms", "5")):
            with pytest.raises(BrokerError, match=r"gregor\.fault\.injection\.enable=true") as refusal:
                await admin.alter_configs(ResourceType.BROKER, "", [(AlterOperation.SET, key, value)])
            assert refusal.value.code is ErrorCode.INVALID_CONFIG


async def test_injections_are_counted_by_rule_and_the_count_outlives_the_rule(faulty: FaultyBroker) -> None:
    wire = await faulty.connect()
    faulty.rules(moved=MOVED, idle="api=Fetch stall")
    await produce(wire, ORDERS)
    await produce(wire, ORDERS)

    def counted() -> dict[str, float]:
        (family,) = (f for f in broker_families(faulty.broker.services) if f.name == "gregor_fault_injections_total")
        return {labels["rule"]: value for labels, value in family.samples}

    assert counted() == {"moved": 2, "idle": 0}
    faulty.rules()
    assert counted()["moved"] == 2


def test_an_unchanged_rule_keeps_its_count_while_other_rules_change() -> None:
    now = [0.0]
    faults = FaultInjection(ManualClock(), now_s=lambda: now[0])
    faults.take({"a": "stall first=1"}, 0)
    assert [known.name for known in faults.striking(lambda known: True)] == ["a"]
    faults.take({"a": "stall first=1", "b": "stall from=1s"}, 0)
    assert faults.striking(lambda known: True) == []
    now[0] = 1.0
    assert [known.name for known in faults.striking(lambda known: True)] == ["b"]
    faults.take({"a": "stall first=1 at=answer"}, 0)
    assert [known.name for known in faults.striking(lambda known: True)] == ["a"]
    assert faults.strike_counts() == {"a": 2, "b": 1}


def test_dynamic_rules_override_those_of_the_properties_and_off_disables_a_rule() -> None:
    config = BrokerConfig({**ENABLED, RULE: "stall", "gregor.fault.rule.other": "disconnect"})
    config.override({RULE: "delay=1ms", "gregor.fault.rule.bad": "nonsense"}, {"gregor.fault.rule.other": "off"})
    assert config.fault_rules == {"moved": "delay=1ms", "other": "off"}
    faults = FaultInjection(ManualClock())
    faults.take(config.fault_rules, 0)
    assert [known.name for known in faults.striking(lambda known: True)] == ["moved"]


def test_a_bad_rule_in_the_properties_stops_the_start() -> None:
    with pytest.raises(ConfigError, match=r"gregor.fault.rule.moved.*unknown word 'dely'"):
        BrokerConfig({**ENABLED, RULE: "dely=1ms"})


def test_fault_rules_without_fault_injection_give_a_warning() -> None:
    (_, warnings) = BrokerConfig({RULE: MOVED}).notices()
    assert warnings == [f"{RULE}: without effect, as gregor.fault.injection.enable is false"]
    assert BrokerConfig({**ENABLED, RULE: MOVED}).notices() == ([], [])


YAML = """
rules:
  slow-produce:
    api: [Produce, Fetch]
    topic: orders
    delay: 20ms
  lost: api=Produce disconnect at=answer first=3
  calm: off
"""
READ = {
    "slow-produce": "api=Fetch,Produce topic=orders delay=20ms",
    "lost": "api=Produce disconnect at=answer first=3",
    "calm": "off",
}


def test_a_yaml_file_is_in_force_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text(YAML)
    config = BrokerConfig({**ENABLED, "gregor.fault.file": str(path), "gregor.fault.rule.lost": "stall"})
    assert config.fault_rules == {**READ, "lost": "stall"}


@pytest.mark.parametrize("name", ["faults.json", "faults.yaml"])
def test_a_json_rule_file_is_read_without_pyyaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = tmp_path / name
    path.write_text(json.dumps({"rules": {"a": {"stall": True}}}))
    assert read_rule_file(str(path)) == {"a": "stall"}


def test_without_pyyaml_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = tmp_path / "faults.yaml"
    path.write_text(YAML)
    with pytest.raises(ConfigError, match=r"pip install 'gregor-broker\[faults\]'"):
        BrokerConfig({"gregor.fault.file": str(path)})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected one mapping named rules"),
        ("rules: []", "expected one mapping named rules"),
        ("rules: {}\nclock: 1", "expected one mapping named rules"),
        ("rules: {a: 3}", "rule a: expected text or a mapping"),
        ("rules: {a b: stall}", "rule a b: a rule's name"),
        ("rules: {a: {dely: 1}}", "rule a: unknown word 'dely'"),
        ("rules: {a: [", "is not YAML"),
        ("rules: {a: !!python/object:os.system x}", "is not YAML"),
        ("\x00", "is not YAML"),
    ],
)
def test_errors_of_a_rules_file_name_the_mistake(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text(text)
    with pytest.raises(FaultRuleError) as refusal:
        read_rule_file(str(path))
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_missing_fault_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gregor\.fault\.file: cannot read .*: No such file"):
        BrokerConfig({"gregor.fault.file": str(tmp_path / "none")})
