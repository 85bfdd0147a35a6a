"""A container engine for the tests of the image: ../shared/containers/engine, and docker commands on it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT.parent / "shared" / "containers" / "engine"
IMAGE = "gregor:tested"
BUILD_PATIENCE_S = 3600
"""Longest time in seconds for a build: a minute on two idle cores, a quarter of an hour on overloaded ones."""


class Engine:
    """A Docker daemon, reached by its command line."""

    def __init__(self, host: str) -> None:
        self.environment = os.environ | {"DOCKER_HOST": host}
        self._containers: list[str] = []
        self._networks: list[str] = []

    def docker(self, *words: str, check: bool = True, timeout_s: float = PATIENCE_S) -> str:
        """Run a docker command; return its output, stderr included."""
        done = subprocess.run(
            ["docker", *words],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout
        return done.stdout.strip()

    def run(self, *options: str, command: Sequence[str] = (), variables: Mapping[str, str] | None = None) -> str:
        """Start a container of the image in the background; return its name."""
        name = f"gregor-test-{uuid4().hex[:12]}"
        environment = [word for key, value in (variables or {}).items() for word in ("--env", f"{key}={value}")]
        self._containers.append(name)
        # A loaded machine takes longer to start the healthcheck than users should wait for it.
        patient = ("--health-timeout", f"{PATIENCE_S:.0f}s")
        self.docker("run", "--detach", "--name", name, *patient, *environment, *options, IMAGE, *command)
        return name

    def serving(self, *options: str, **variables: str) -> str:
        """Start a broker and wait until its container is healthy; return its name."""
        name = self.run("--health-interval", "1s", *options, variables=variables)
        self.wait_until_healthy(name)
        return name

    def wait_until_healthy(self, name: str) -> None:
        """Return once the healthcheck has passed. Raises AssertionError with the log if the container ends."""
        deadline = time.monotonic() + 2 * PATIENCE_S
        while time.monotonic() < deadline:
            state = self.inspect(name)["State"]
            assert state["Running"], self.docker("logs", name)
            if state["Health"]["Status"] == "healthy":
                return
            time.sleep(0.2)
        raise AssertionError(f"{self.inspect(name)['State']['Health']}\n{self.docker('logs', name)}")

    def inspect(self, name: str) -> dict[str, Any]:
        """Return the engine's description of a container."""
        (found,) = json.loads(self.docker("inspect", name))
        assert isinstance(found, dict)
        return found

    def is_running(self, name: str) -> bool:
        """Return whether the first process of a container runs."""
        return bool(self.inspect(name)["State"]["Running"])

    def new_network(self) -> str:
        """Create a network for containers; return its name."""
        self._networks.append(f"gregor-test-{uuid4().hex[:12]}")
        self.docker("network", "create", self._networks[-1])
        return self._networks[-1]

    def clean_up(self) -> None:
        """Remove the containers and networks of this engine's tests."""
        if self._containers:
            self.docker("rm", "--force", "--volumes", *self._containers, check=False)
        if self._networks:
            self.docker("network", "rm", *self._networks, check=False)


def start_engine() -> Engine:
    """Start a daemon and build the image, or skip the test with the reason."""
    if not ENGINE.exists():
        pytest.skip("no ../shared/containers/engine beside this checkout: the image is tested on a container engine")
    started = subprocess.run([ENGINE, "start"], capture_output=True, text=True, timeout=BUILD_PATIENCE_S, check=False)
    if started.returncode != 0:
        pytest.skip(f"no container engine can be had here: {(started.stderr or started.stdout).strip()[-300:]}")
    engine = Engine(started.stdout.strip().partition("DOCKER_HOST=")[2].strip("'\""))
    engine.docker(
        "build", "--quiet", "--file", str(ROOT / "docker" / "Dockerfile"), "--tag", IMAGE, str(ROOT),
        timeout_s=BUILD_PATIENCE_S,
    )  # fmt: skip
    return engine
