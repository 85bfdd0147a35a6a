"""The configuration of Hadoop's file systems that the user has made for Spark, without a Java.

Spark passes settings `spark.hadoop.fs.s3a.endpoint` on to Hadoop as `fs.s3a.endpoint`; a session's `fs.*` settings, as
made with `spark.conf.set`, are passed on too (SessionState.newHadoopConf). core-site.xml is read as Hadoop reads it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from . import spark_settings
from .errors import PipelineError

SPARK_PREFIX = "spark.hadoop."
PREFIXES = ("fs.", "google.cloud.")
"""The beginnings of the keys of file systems."""

_VARIABLE = re.compile(r"\$\{env\.(\w+)(?::?-([^}]*))?\}")
_given: dict[str, str] = {}


def use_settings(settings: Mapping[str, str]) -> None:
    """Let later calls of `hadoop_settings` know settings of Spark that this program was given."""
    _given.clear()
    _given.update(settings)
    forget()


def forget() -> None:
    """Let the next call of `hadoop_settings` look again."""
    hadoop_settings.cache_clear()


@cache
def hadoop_settings() -> Mapping[str, str]:
    """Return the settings of file systems by Hadoop's keys, such as `fs.s3a.endpoint`. Raises PipelineError.

    From the weakest to the strongest: core-site.xml, the user's settings of Spark, this program's, the session's.
    """
    found = _core_site()
    submitted = spark_settings.chosen_settings() if importlib.util.find_spec("pyspark") else {}
    for settings in (submitted, _given, _session_settings()):
        for key, text in settings.items():
            name = key.removeprefix(SPARK_PREFIX)
            if name.startswith(PREFIXES) and (name != key or not key.startswith("spark.")):
                found[name] = _VARIABLE.sub(lambda named: os.environ.get(named[1], named[2] or ""), text)
    return found


def _session_settings() -> dict[str, str]:
    """Return the settings of the session that runs; none if there is none."""
    if "pyspark.sql" not in sys.modules:
        return {}
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    return dict(session.conf.getAll) if session is not None else {}


def _core_site() -> dict[str, str]:
    folder = os.environ.get("HADOOP_CONF_DIR")
    path = Path(folder) / "core-site.xml" if folder else None
    if path is None or not path.exists():
        return {}
    try:
        properties = ElementTree.fromstring(path.read_text())  # noqa: S314
    except (OSError, ElementTree.ParseError) as fault:
        raise PipelineError(f"{path} cannot be read: {fault}") from fault
    pairs = ((each.findtext("name", ""), each.findtext("value", "")) for each in properties.iter("property"))
    return {name.strip(): text.strip() for name, text in pairs if name.strip().startswith(PREFIXES)}
