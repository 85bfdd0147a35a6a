"""Jars of Java servers for tests, which Maven fetches with all that they need."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

LIMIT_S = 300.0

Artifact = tuple[str, str, str, str]
"""A group, a name, a version and a classifier, which may be empty."""


def classpath(directory: Path, artifacts: Sequence[Artifact]) -> str:
    """Return the class path of artifacts and of what they need. Skips the test without Maven, Java or the jars."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("this server needs Maven and Java")
    (directory / "pom.xml").write_text(_project(artifacts))
    command = ["mvn", "-q", "-f", str(directory / "pom.xml"), "dependency:build-classpath"]
    command.append(f"-Dmdep.outputFile={directory / 'classpath'}")
    fetched = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if fetched.returncode:
        pytest.skip(f"the jars could not be had: {fetched.stdout[-300:]}")
    return (directory / "classpath").read_text()


def _project(artifacts: Sequence[Artifact]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        + (f"<classifier>{classifier}</classifier>" if classifier else "")
        + "</dependency>"
        for group, name, version, classifier in artifacts
    )
    name = "<groupId>tests</groupId><artifactId>jars</artifactId><version>1</version>"
    return f"<project><modelVersion>4.0.0</modelVersion>{name}<dependencies>{dependencies}</dependencies></project>"
