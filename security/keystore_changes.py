"""Rules for a keystore that replaces the present one of an open listener (Kafka ``SslFactory``, KIP-226, KIP-978)."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .distinguished_names import rfc_2253_name
from .errors import SecuritySettingError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from .stores import KeyMaterial

UNCONNECTABLE = (
    "A client SSLEngine created with the provided settings can't connect to a server SSLEngine created with those "
    "settings."
)
MOST_FLIGHTS = 10
"""More than the turns of both sides in any handshake."""


def check_successor(
    present: KeyMaterial, successor: KeyMaterial, *, allows_dn_changes: bool, allows_san_changes: bool
) -> None:
    """Check that a new certificate keeps the subject and the alternative names of the present one.

    Raises SecuritySettingError with Kafka's text.
    """
    old, new = present.certificates[0], successor.certificates[0]
    if not allows_dn_changes and _comparable(old) != _comparable(new):
        raise SecuritySettingError(
            "Keystore DistinguishedName does not match: "
            f" existing={{alias={present.alias}, DN={_shown(old)}}}, new={{alias={successor.alias}, DN={_shown(new)}}}"
        )
    old_names, new_names = list(_alternative_names(old)), list(_alternative_names(new))
    if not allows_san_changes and not set(old_names) <= set(new_names):
        raise SecuritySettingError(
            "Keystore SubjectAltNames do not match: "
            f" existing={{alias={present.alias}, SAN=[{', '.join(old_names)}]}}, "
            f"new={{alias={successor.alias}, SAN=[{', '.join(new_names)}]}}"
        )


def check_connectable(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Make a TLS handshake in memory, as Kafka does for the listener between brokers (``SslEngineValidator``).

    Raises SecuritySettingError with OpenSSL's reason.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(MOST_FLIGHTS):
        waiting = False
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting = True
            except ssl.SSLError as error:
                reason = getattr(error, "verify_message", "") or error.reason or str(error)
                raise SecuritySettingError(f"the TLS handshake between brokers would fail: {reason}") from None
        if not waiting:
            return
    raise SecuritySettingError("the TLS handshake between brokers would not end")


def _comparable(certificate: Certificate) -> str:
    """Return the subject without differences that Java's ``X500Principal.equals`` ignores."""
    return " ".join(rfc_2253_name(certificate.subject).lower().split())


def _shown(certificate: Certificate) -> str:
    """Return the subject as Java's ``X500Principal.toString`` writes it."""
    return rfc_2253_name(certificate.subject, separator=", ")


def _alternative_names(certificate: Certificate) -> Iterator[str]:
    """Yield the alternative names as Java lists them: the number of the kind of name, and the name."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return
    for name in names:
        match name:
            case x509.RFC822Name():
                yield f"[1, {name.value}]"
            case x509.DNSName():
                yield f"[2, {name.value}]"
            case x509.DirectoryName():
                yield f"[4, {rfc_2253_name(name.value)}]"
            case x509.UniformResourceIdentifier():
                yield f"[6, {name.value}]"
            case x509.IPAddress():
                yield f"[7, {name.value}]"
            case x509.RegisteredID():
                yield f"[8, {name.value.dotted_string}]"
            case _:
                yield f"[0, {name!r}]"
