"""Requirements of a session with Delta Lake, and the messages if they are missing."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

import pyspark
from pyspark.errors import PySparkRuntimeError

from gregor.pipeline import delta_lake
from gregor.pipeline.errors import PipelineError


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory for jars of this Spark, with the extra apparently installed."""
    monkeypatch.setenv("SPARK_JARS_HOME", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(name=name))
    folder = tmp_path / str(pyspark.__version__)
    folder.mkdir()
    return folder


def test_jars_come_from_maven_central_unless_they_are_there(jars: Path) -> None:
    (jars / "kafka-clients-3.9.2.jar").touch()
    assert delta_lake.delta_settings()["spark.jars.packages"] == delta_lake.PACKAGE
    (jars / "delta-spark_4.2_2.13-4.4.0.jar").touch()
    settings = delta_lake.delta_settings()
    assert "spark.jars.packages" not in settings
    assert settings["spark.sql.extensions"] == delta_lake.EXTENSION


def test_without_the_extra_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PipelineError, match=r"pip install 'gregor-broker\[delta\]'"):
        delta_lake.delta_settings()


def test_without_the_jars_the_error_names_them(jars: Path) -> None:
    class Desk:
        def session(self, config: object = None) -> Any:
            # Spark's error when its launcher could not download a package.
            raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    desk: Any = Desk()
    with pytest.raises(PipelineError, match=r"delta-spark_4\.2_2\.13:4\.4\.0 could not be had from Maven Central"):
        delta_lake.delta_session(desk)
