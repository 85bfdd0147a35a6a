"""`gregor dev-certs`: everything for a secured broker on this machine: certificates, a SASL user, and properties files.

For development and tests: the files hold keys and passwords in clear.
"""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path

from ..security.development_certificates import DevelopmentAuthority
from .asking import UsageError, run_tool, say

EXAMPLES = """\
examples:
  gregor dev-certs
  gregor dev-certs --dir certs --host kafka.test --host localhost --user alice --days 30
"""

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
DEFAULT_HOSTS = ("localhost", "127.0.0.1", "::1")
SASL_PORT, SSL_PORT = 9092, 9093
PRIVATE = 0o600
"""The mode of the files: all but the CA's certificate hold secrets."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "dev-certs",
        help="make certificates, a user and settings for a secured broker (development)",
        epilog=EXAMPLES,
    )
    parser.add_argument("--dir", default="gregor-certs", type=Path, metavar="DIR", help="default: %(default)s")
    parser.add_argument(
        "--host",
        action="append",
        metavar="NAME",
        help="name or address of the broker; the first is advertised (default: localhost; repeatable)",
    )
    parser.add_argument("--user", default="user", metavar="NAME", help="name of the SASL user (default: %(default)s)")
    parser.add_argument("--days", default=365, type=int, metavar="N", help="validity in days (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="replace the files of an earlier call")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the files; return the exit status."""
    return run_tool(lambda: _write_all(options))


def _write_all(options: argparse.Namespace) -> None:
    """Write all files. Raises UsageError."""
    if options.days < 1:
        raise UsageError(f"--days must be at least 1, not {options.days}")
    if not options.user.isascii() or not options.user.replace("-", "").replace("_", "").isalnum():
        raise UsageError(f"--user {options.user!r}: only letters, digits, - and _")
    directory: Path = options.dir.absolute()
    files = _files(directory, options.host or list(DEFAULT_HOSTS), options.user, options.days)
    existing = [name for name in files if (directory / name).exists()]
    if existing and not options.force:
        raise UsageError(f"{directory / existing[0]} exists: --force replaces the files")
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = directory / name
        path.unlink(missing_ok=True)
        path.touch(mode=PRIVATE)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (directory / "ca.pem").chmod(0o644)
    host = (options.host or DEFAULT_HOSTS)[0]
    say(f"gregor serve {options.dir}/server.properties")
    say(f"gregor topics --bootstrap-server {host}:{SASL_PORT} --command-config {options.dir}/client.properties --list")


def _files(directory: Path, hosts: list[str], user: str, days: int) -> dict[str, bytes | str]:
    """Return the content of each file, by name."""
    authority = DevelopmentAuthority("gregor dev-certs CA", days)
    broker = authority.identity("broker", hosts)
    client = authority.identity(user)
    store_password, password, admin_password = (secrets.token_urlsafe(18) for _ in range(3))
    login = f'{PLAIN_MODULE} required username="{user}" password="{password}";'
    users = f'{PLAIN_MODULE} required user_{user}="{password}" user_admin="{admin_password}";'
    trust = f"ssl.truststore.type=PEM\nssl.truststore.location={directory / 'ca.pem'}\n"
    java_trust = (
        f"ssl.truststore.type=PKCS12\nssl.truststore.location={directory / 'truststore.p12'}\n"
        f"ssl.truststore.password={store_password}\n"
    )
    return {
        "ca.pem": authority.pem,
        "truststore.p12": authority.truststore(store_password),
        "broker.pem": broker.pem,
        "broker.p12": broker.pkcs12(store_password),
        "client.pem": client.pem,
        "client.p12": client.pkcs12(store_password),
        "server.properties": (
            f"# gregor serve {directory / 'server.properties'}\n"
            f"listeners=SASL_SSL://:{SASL_PORT},SSL://:{SSL_PORT}\n"
            f"advertised.listeners=SASL_SSL://{_in_address(hosts[0])}:{SASL_PORT},"
            f"SSL://{_in_address(hosts[0])}:{SSL_PORT}\n"
            "ssl.keystore.type=PEM\n"
            f"ssl.keystore.location={directory / 'broker.pem'}\n"
            f"{trust}"
            "# A client of the listener SSL needs a certificate; its name is the user: CN=user becomes User:user.\n"
            "listener.name.ssl.ssl.client.auth=required\n"
            "ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/,DEFAULT\n"
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n"
            f"listener.name.sasl_ssl.plain.sasl.jaas.config={users}\n"
        ),
        "client.properties": f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n{trust}",
        "admin.properties": (
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={PLAIN_MODULE} required username="admin" password="{admin_password}";\n{trust}'
        ),
        "client-certificate.properties": (
            f"# For the listener SSL, port {SSL_PORT}.\n"
            "security.protocol=SSL\nssl.keystore.type=PEM\n"
            f"ssl.keystore.location={directory / 'client.pem'}\n{trust}"
        ),
        "client-java.properties": (
            "# The same as client.properties, for Java clients before 2.7, which read no PEM files.\n"
            f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n{java_trust}"
        ),
        "librdkafka.conf": (
            f"bootstrap.servers={_in_address(hosts[0])}:{SASL_PORT}\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
            f"sasl.username={user}\nsasl.password={password}\nssl.ca.location={directory / 'ca.pem'}\n"
        ),
    }


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host
