"""Our client against Apache Kafka 3.9.1, with the scenes that it plays against Gregor."""

from __future__ import annotations

import pytest
import trio

from gregor.client import Admin
from tests.client.admin_scenes import SCENES, Scene
from tests.client.client_scenes import CLIENT_SCENES, ClientScene
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.peer


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_the_admin_client_works_against_kafka(kafka_391: str, scene: Scene) -> None:
    async with Admin(kafka_391) as admin:
        with trio.fail_after(PATIENCE_S):
            await scene(admin, kafka_391)


@pytest.mark.parametrize("scene", CLIENT_SCENES, ids=lambda scene: scene.__name__)
async def test_producer_and_consumer_work_against_kafka(kafka_391: str, scene: ClientScene) -> None:
    with trio.fail_after(PATIENCE_S):
        await scene(kafka_391)
