"""Turn a container's environment into ``server.properties``, by the rules of other Kafka images.

``KAFKA_LOG_RETENTION_MS`` is ``log.retention.ms``; a double underscore means an underscore and a triple underscore a
dash (apache/kafka's image). ``KAFKA_CFG_*`` is read the same way (bitnami's image), and ``GREGOR_METRICS_LISTENER`` is
``gregor.metrics.listener``. The environment takes precedence over the properties files in the folder that the first
argument names, which are read in the order of their names. ``CLUSTER_ID``, ``KAFKA_CREATE_TOPICS`` and
``KAFKA_LOG4J_ROOT_LOGLEVEL`` have keys of their own. ``KAFKA_SSL_KEYSTORE_FILENAME`` and the like name files in
``/etc/kafka/secrets``, and ``KAFKA_OPTS`` may name a JAAS file. Unlike in those images, setting one variable keeps the
defaults of all others.

The script uses only the standard library, and prints the file to standard output.
"""

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

# Variables of the images that configure the JVM or scripts, never the broker.
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
"""Levels of log4j that Gregor lacks, with the nearest level of Gregor."""
MAPPED_BY_DEFAULT = {"gregor.gateway.advertised.listeners": "PLAINTEXT://localhost:9092"}
"""The advertised listener for clients of the published port; other Kafka images advertise it to all clients."""
OWN_HOSTS = ("localhost", "127.0.0.1")
"""Hosts of ``zookeeper.connect`` that are this container."""
SECRETS = Path("/etc/kafka/secrets")
"""The folder of the files that the variables of `STORE_FILES` and `CREDENTIALS` name."""
STORE_FILES = {
    "KAFKA_SSL_KEYSTORE_FILENAME": "ssl.keystore.location",
    "KAFKA_SSL_TRUSTSTORE_FILENAME": "ssl.truststore.location",
}
CREDENTIALS = {
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "ssl.keystore.password",
    "KAFKA_SSL_KEY_CREDENTIALS": "ssl.key.password",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "ssl.truststore.password",
}
"""Variables that name files whose content is a password."""
LOGIN_FILE = "-Djava.security.auth.login.config="
"""The option in KAFKA_OPTS that names a JAAS file."""
IMAGE_DEFAULTS = {"listeners": "PLAINTEXT://0.0.0.0:9092", "log.dirs": "/var/lib/kafka/data"}


def key_of(variable: str) -> str | None:
    """Return the configuration key that ``variable`` sets; None if it sets no key."""
    if variable in OWN_KEYS:
        return OWN_KEYS[variable]
    if variable.startswith("GREGOR_") and variable not in NOT_GREGOR_SETTINGS:
        return variable.lower().replace("_", ".")
    if variable in (*NOT_SETTINGS, *STORE_FILES, *CREDENTIALS) or not variable.startswith("KAFKA_"):
        return None
    name = variable.removeprefix("KAFKA_").removeprefix("CFG_").lower()
    return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def listeners_behind(advertised: str) -> str:
    """Return listeners with the names and ports of ``advertised.listeners``, on all addresses."""
    opened = []
    for listener in advertised.split(","):
        name, _, address = listener.strip().partition("://")
        opened.append(f"{name}://0.0.0.0:{address.rpartition(':')[2]}")
    return ",".join(opened)


def secret_settings(environment: Mapping[str, str], secrets: Path = SECRETS) -> dict[str, str]:
    """Return the keys of stores, of their passwords and of the JAAS file. Raises SystemExit with one line for the user.

    Kafka's images need such variables where a listener uses TLS or SASL, and read them in the same way.
    """
    found = {}
    for variable, key in STORE_FILES.items():
        if environment.get(variable):
            found[key] = str(secrets / environment[variable])
    for variable, key in CREDENTIALS.items():
        if environment.get(variable):
            path = secrets / environment[variable]
            try:
                found[key] = path.read_text().rstrip("\n")
            except OSError as error:
                sys.exit(f"{variable} names {path}, which cannot be read: {error.strerror}")
    try:
        words = shlex.split(environment.get("KAFKA_OPTS", ""))
    except ValueError:
        sys.exit("KAFKA_OPTS has a quote that does not end")
    for word in words:
        if word.startswith(LOGIN_FILE):
            found["gregor.sasl.jaas.file"] = word.removeprefix(LOGIN_FILE)
    return found


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return each key that ``environment`` sets, with its value; missing ``listeners`` are derived."""
    found = {key: value for name, value in sorted(environment.items()) if (key := key_of(name)) is not None}
    if "gregor.log.level" in found:
        level = found["gregor.log.level"].partition(",")[0].strip().upper()
        found["gregor.log.level"] = LOG4J_LEVELS.get(level, level)
    host, _, port = found.get("zookeeper.connect", "").partition("/")[0].rpartition(":")
    if host in OWN_HOSTS and port:
        # Images of Kafka with ZooKeeper also start a ZooKeeper, and testcontainers modules wait for its port.
        found.setdefault("gregor.zookeeper.listeners", f"zookeeper://0.0.0.0:{port}")
    if "advertised.listeners" in found and "listeners" not in found:
        found["listeners"] = listeners_behind(found["advertised.listeners"])
    return found


def property_line(key: str, value: str) -> str:
    """Return one line of a properties file; backslashes and line ends are escaped for java.util.Properties."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{key}={escaped}"


def mounted_files(folder: Path) -> list[Path]:
    """Return the properties files of ``folder`` for the broker, without those of log4j."""
    return [path for path in sorted(folder.glob("*.properties")) if "log4j" not in path.name and path.is_file()]


def names_listeners(text: str) -> bool:
    """Return whether a properties file sets ``listeners`` or ``advertised.listeners``."""
    return re.search(r"^\s*(advertised\.)?listeners\s*[=:]", text, re.MULTILINE) is not None


def main(folder: str | None = None) -> None:
    """Print defaults, then the mounted files, then the environment: in a properties file the last line wins."""
    mounted = [path.read_text() for path in mounted_files(Path(folder))] if folder else []
    told = {**secret_settings(os.environ), **settings(os.environ)}
    print(*(property_line(*item) for item in IMAGE_DEFAULTS.items()), sep="\n")
    if "listeners" not in told and not any(map(names_listeners, mounted)):
        print(*(property_line(*item) for item in MAPPED_BY_DEFAULT.items()), sep="\n")
    print(*mounted, sep="\n")
    print(*(property_line(*item) for item in told.items()), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
