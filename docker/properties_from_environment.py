"""Turn a container's environment into ``server.properties``, by the rules of the images that people come from.

``KAFKA_LOG_RETENTION_MS`` is ``log.retention.ms``; a double underscore stands for an underscore and a triple one for a
dash (apache/kafka's image). ``KAFKA_CFG_*`` is read the same way (bitnami's image). The environment wins over the
mounted file named by the first argument. ``CLUSTER_ID`` and ``KAFKA_LOG4J_ROOT_LOGLEVEL`` have keys of their own.
Unlike in those images, one variable does not drop the defaults of all the others.

It stands alone, on the standard library only, and prints the file to standard output.
"""

import os
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
IMAGE_DEFAULTS = {"listeners": "PLAINTEXT://0.0.0.0:9092", "log.dirs": "/var/lib/kafka/data"}


def key_of(variable: str) -> str | None:
    """The configuration key that ``variable`` sets, or None where it sets none."""
    if variable in OWN_KEYS:
        return OWN_KEYS[variable]
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
    if "advertised.listeners" in found and "listeners" not in found:
        found["listeners"] = listeners_behind(found["advertised.listeners"])
    return found


def property_line(key: str, value: str) -> str:
    """One line of a properties file; backslashes and line ends are escaped as java.util.Properties reads them."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{key}={escaped}"


def main(mounted: str | None = None) -> None:
    """Print defaults, then the mounted file, then the environment: in a properties file the last line wins."""
    print(*(property_line(*item) for item in IMAGE_DEFAULTS.items()), sep="\n")
    if mounted and Path(mounted).is_file():
        print(Path(mounted).read_text())
    print(*(property_line(*item) for item in settings(os.environ).items()), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
