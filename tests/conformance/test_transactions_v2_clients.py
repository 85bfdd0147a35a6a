"""Clients that speak transactions V2 (KIP-890), once `transaction.version` is finalized at 2."""

import subprocess
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey, GregorApiKey
from gregor.protocol.messages.describe_clients import DescribeClientsRequest
from gregor.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.wire import Wire

pytestmark = pytest.mark.peer

SPEAK_V2 = {"apache-kafka-java", "kgo"}
"""KIP-511 names; the Java client from 4.0 on."""
V2_VERSIONS = {(ApiKey.PRODUCE, 12), (ApiKey.END_TXN, 5)}
NEEDLESS_IN_V2 = {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN}


def test_transactional_clients_of_all_ages_pass_and_new_ones_use_v2(shared: Path, zoo_broker: str) -> None:
    host, port = zoo_broker.split(":")
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=2)
    with Wire((host, int(port))) as wire:
        answer = wire.ask(ApiKey.UPDATE_FEATURES, 1, UpdateFeaturesRequest(feature_updates=[update]))
        assert not answer.error_code
    zoo = shared / "clients" / "zoo"
    if not zoo.exists():
        pytest.skip("no ../shared/clients")
    run = subprocess.run([zoo, zoo_broker, "--modes", "txn"], capture_output=True, text=True, timeout=3600)
    print(run.stdout[-4000:])
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    with Wire((host, int(port))) as wire:
        clients = wire.ask(GregorApiKey.DESCRIBE_CLIENTS, 0, DescribeClientsRequest()).clients
    of_v2: dict[str, set[tuple[int, int]]] = {}
    for client in clients:
        used = {(entry.api_key, entry.api_version) for entry in client.api_versions}
        if (ApiKey.END_TXN, 5) in used:
            of_v2.setdefault(client.software_name, set()).update(used)
    assert set(of_v2) == SPEAK_V2
    for used in of_v2.values():
        assert used >= V2_VERSIONS
        assert not NEEDLESS_IN_V2 & {api for api, _ in used}
