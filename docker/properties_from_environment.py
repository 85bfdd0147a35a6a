"""Turn a container's environment into ``server.properties``, by the rules of the images that people come from.

``KAFKA_LOG_RETENTION_MS`` is ``log.retention.ms``; a double underscore stands for an underscore and a triple one for a
dash (apache/kafka's image). ``KAFKA_CFG_*`` is read the same way (bitnami's image), and ``GREGOR_METRICS_LISTENER`` is
``gregor.metrics.listener``. The environment wins over the properties files in the folder named by the first argument,
which are read in the order of their names. ``CLUSTER_ID``, ``KAFKA_CREATE_TOPICS`` and ``KAFKA_LOG4J_ROOT_LOGLEVEL``
have keys of their own. Unlike in those images, one variable does not drop the defaults of all the others.

It stands alone, on the standard library only, and prints the file to standard output.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

# Variables of the images that speak to the JVM or to scripts, never to the broker.
NOT_SETTINGS = frozenset(
    [
        "KAFKA_VERSION",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_HOME",
        "KAFKA_CREATE_TOPICS",
        "KAFKA_ENABLE_KRAFT",
        "KAFKA_KRAFT_CLUSTER_ID",
    ]
)
OWN_KEYS = {
    "CLUSTER_ID": "gregor.cluster.id",
    "KAFKA_KRAFT_CLUSTER_ID": "gregor.cluster.id",
    "KAFKA_LOG4J_ROOT_LOGLEVEL": "gregor.log.level",
    "KAFKA_CREATE_TOPICS": "gregor.create.topics",
}
NOT_GREGOR_SETTINGS = frozenset(["GREGOR_BOOTSTRAP_SERVER", "GREGOR_PURE_PYTHON"])
"""Variables of the command line and of the installation."""
LOG4J_LEVELS = {"OFF": "FATAL", "ALL": "TRACE"}
"""Levels of log4j that Gregor lacks, with the nearest that it has."""
MAPPED_BY_DEFAULT = {"gregor.gateway.advertised.listeners": "PLAINTEXT://localhost:9092"}
"""What the host is told of the published port; the images that people come from tell it to everybody."""
IMAGE_DEFAULTS = {"listeners": "PLAINTEXT://0.0.0.0:9092", "log.dirs": "/var/lib/kafka/data"}


def key_of(variable: str) -> str | None:
    """The configuration key that ``variable`` sets, or None where it sets none."""
    if variable in OWN_KEYS:
        return OWN_KEYS[variable]
    if variable.startswith("GREGOR_") and variable not in NOT_GREGOR_SETTINGS:
        return variable.lower().replace("_", ".")
    if variable in NOT_SETTINGS or not variable.startswith("KAFKA_"):
        return None
    name = variable.removeprefix("KAFKA_").removeprefix("CFG_").lower()
    return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def listeners_behind(advertised: str) -> str:
    """The listeners to open when only ``advertised.listeners`` is given: the same names and ports, on all addresses."""
    opened = []
    for listener in advertised.split(","):
        name, _, address = listener.strip().partition("://")
        opened.append(f"{name}://0.0.0.0:{address.rpartition(':')[2]}")
    return ",".join(opened)


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Every key that ``environment`` sets, with its value; ``listeners`` is derived where it is missing."""
    found = {key: value for name, value in sorted(environment.items()) if (key := key_of(name)) is not None}
    if "gregor.log.level" in found:
        level = found["gregor.log.level"].partition(",")[0].strip().upper()
        found["gregor.log.level"] = LOG4J_LEVELS.get(level, level)
    if "advertised.listeners" in found and "listeners" not in found:
        found["listeners"] = listeners_behind(found["advertised.listeners"])
    return found


def property_line(key: str, value: str) -> str:
    """One line of a properties file; backslashes and line ends are escaped as java.util.Properties reads them."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{key}={escaped}"


def mounted_files(folder: Path) -> list[Path]:
    """The properties files of ``folder`` for the broker; those for log4j are the JVM's."""
    return [path for path in sorted(folder.glob("*.properties")) if "log4j" not in path.name and path.is_file()]


def names_listeners(text: str) -> bool:
    """Whether a properties file says where the broker listens."""
    return re.search(r"^\s*(advertised\.)?listeners\s*[=:]", text, re.MULTILINE) is not None


def main(folder: str | None = None) -> None:
    """Print defaults, then the mounted files, then the environment: in a properties file the last line wins."""
    mounted = [path.read_text() for path in mounted_files(Path(folder))] if folder else []
    told = settings(os.environ)
    print(*(property_line(*item) for item in IMAGE_DEFAULTS.items()), sep="\n")
    if "listeners" not in told and not any(map(names_listeners, mounted)):
        print(*(property_line(*item) for item in MAPPED_BY_DEFAULT.items()), sep="\n")
    print(*mounted, sep="\n")
    print(*(property_line(*item) for item in told.items()), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
