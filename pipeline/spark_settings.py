"""The Spark settings that the user has made outside this program: spark-submit, environment, spark-defaults.conf.

A session's builder overrides all of these in PySpark, so our setting must not be passed to the builder where the
user has made one. Source: SparkSubmitArguments.scala and java_gateway.py of Spark 4.2.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

MASTER = "spark.master"
APP_NAME = "spark.app.name"
PYTHON = "spark.pyspark.python"
REMOTE = "spark.remote"
LISTS = ("spark.jars", "spark.jars.packages", "spark.jars.excludes", "spark.sql.extensions")
"""The settings to which ours are added: comma-separated names."""

_DEFAULTS_LINE = re.compile(r"\s*(spark\.[^\s=:]+)[\s=:]+(.*?)\s*")
_OPTIONS = {
    "--master": MASTER,
    "--remote": REMOTE,
    "--name": APP_NAME,
    "--deploy-mode": "spark.submit.deployMode",
    "--driver-memory": "spark.driver.memory",
    "--jars": "spark.jars",
    "--packages": "spark.jars.packages",
    "--exclude-packages": "spark.jars.excludes",
}
"""The options of spark-submit whose settings we set too."""


def chosen_settings() -> dict[str, str]:
    """Return the settings that the user has made, by key."""
    if is_submitted():
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    submitted, properties_file = _submit_arguments(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    defaults = properties_file or _spark_home_defaults()
    found = _properties(defaults) | submitted
    if "MASTER" in os.environ:
        found.setdefault(MASTER, os.environ["MASTER"])
    return found


def is_submitted() -> bool:
    """Return whether spark-submit has started this program, so that a JVM with its settings runs already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def is_remote(settings: Mapping[str, str]) -> bool:
    """Return whether sessions use Spark Connect, whose server has a master and static settings of its own."""
    return REMOTE in settings or "SPARK_REMOTE" in os.environ or "SPARK_CONNECT_MODE_ENABLED" in os.environ


def beneath(ours: Mapping[str, str], chosen: Mapping[str, str]) -> dict[str, str]:
    """Return our settings without those that the user has made; names missing in the user's lists are added."""
    settings = {}
    for key, value in ours.items():
        if key not in chosen:
            settings[key] = value
        elif key in LISTS:
            names = dict.fromkeys([*chosen[key].split(","), *value.split(",")])
            settings[key] = ",".join(name for name in names if name)
    return settings


def _submit_arguments(text: str) -> tuple[dict[str, str], Path | None]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--conf", "-c", action="append", default=[])
    parser.add_argument("--properties-file", type=Path)
    for option, key in _OPTIONS.items():
        parser.add_argument(option, dest=key)
    parsed, _ = parser.parse_known_args(shlex.split(text))
    pairs = (each.partition("=") for each in parsed.conf)
    found = {key: value for key, _, value in pairs}
    found |= {key: getattr(parsed, key) for key in _OPTIONS.values() if getattr(parsed, key) is not None}
    return found, parsed.properties_file


def _spark_home_defaults() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf"
    return Path(folder) / "spark-defaults.conf"


def _properties(path: Path) -> dict[str, str]:
    """Return the settings in a file of Java properties; none if it is unreadable, which Spark itself reports if it
    needs the file.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    return {found[1]: found[2] for line in lines if (found := _DEFAULTS_LINE.fullmatch(line))}
