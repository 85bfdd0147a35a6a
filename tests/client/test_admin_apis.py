"""Every administrative API through the admin client, against a Gregor broker."""

from __future__ import annotations

import pytest
import trio

from gregor.client import Admin
from gregor.client.admin.security import ScramMechanism, ScramUpsertion, _salted
from tests.broker_process import BrokerProcess
from tests.client.admin_scenes import SCENES, Scene
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_each_administrative_api_works_against_a_broker(broker_process: BrokerProcess, scene: Scene) -> None:
    async with Admin(broker_process.bootstrap) as admin:
        with trio.fail_after(PATIENCE_S):
            await scene(admin, broker_process.bootstrap)


def test_passwords_are_salted_as_rfc_7677_has_it() -> None:
    """The example of RFC 7677: user "pencil" in SCRAM-SHA-256 with 4096 iterations."""
    salt = bytes.fromhex("5b6d99689d12358eeca04b141236fa81")
    salted = _salted(ScramUpsertion("user", ScramMechanism.SCRAM_SHA_256, b"pencil", 4096, salt))
    assert salted.salted_password.hex() == "c4a49510323ab4f952cac1fa99441939e78ea74d6be81ddf7096e87513dc615d"
