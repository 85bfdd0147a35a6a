"""Keystores and truststores: PEM (files and inline), PKCS12; JKS is refused with the command that converts it.

The types and rules are those of Kafka's ``DefaultSslEngineFactory``. As in Java, the content of a file decides whether
a store of type JKS or PKCS12 is one or the other: keytool has written PKCS12 by default since Java 9, whatever the
file's name.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import SecuritySettingError
from .password import Password

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

STORE_TYPES = ("JKS", "PKCS12", "PEM")
JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
PEM_BEGIN = b"-----BEGIN "
CERTIFICATE_BEGIN = b"-----BEGIN CERTIFICATE-----"
LARGEST_STORE_BYTES = 16 << 20
PEM_ALIAS = "kafka"
"""The alias that Kafka gives to the only entry of a PEM keystore."""
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,64})-----(.*?)-----END \1-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key and its certificate chain, both as PEM; the key is not encrypted."""

    private_key: bytes = field(repr=False)
    chain: bytes
    certificates: tuple[Certificate, ...]
    """The chain, the holder's own certificate first."""
    alias: str = PEM_ALIAS
    """The name of the entry in its keystore."""

    def load_into(self, context: ssl.SSLContext) -> None:
        """Set the key and the chain as the context's own. Raises ssl.SSLError if they do not belong together."""
        # The standard library reads keys from files only; this one exists in memory alone.
        with _memory_file(self.chain) as chain, _memory_file(self.private_key) as key:
            context.load_cert_chain(chain, key)


@contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    descriptor = os.memfd_create("gregor", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def inline_key_material(key: Password, chain: str, key_password: Password | None) -> KeyMaterial:
    """Return the key and chain of ``ssl.keystore.key`` and ``ssl.keystore.certificate.chain``.

    Raises SecuritySettingError.
    """
    return _from_pem(key.value.encode(), chain.encode(), key_password, "ssl.keystore.key")


def read_keystore(
    location: str, store_type: str, store_password: Password | None, key_password: Password | None
) -> KeyMaterial:
    """Return the key and chain in the file ``ssl.keystore.location``. Raises SecuritySettingError."""
    name = "ssl.keystore.location"
    data = _read(name, location)
    if store_type == "PEM":
        if store_password is not None:
            raise SecuritySettingError(
                "SSL key store password cannot be specified with PEM format, only key password may be specified"
            )
        return _from_pem(data, data, key_password, f"{name}: {location}")
    _check_binary(name, location, data, "ssl.keystore.type")
    store = _opened_pkcs12(name, location, data, store_password)
    if store.key is None or store.cert is None:
        raise SecuritySettingError(f"{name}: {location} has no private key with a certificate")
    alias = (store.cert.friendly_name or b"").decode("utf-8", "replace")
    return _material(store.key, _certificates_in(store), alias)


def read_truststore(location: str, store_type: str, password: Password | None) -> str:
    """Return the certificates in the file ``ssl.truststore.location``, as PEM. Raises SecuritySettingError."""
    name = "ssl.truststore.location"
    data = _read(name, location)
    if store_type == "PEM":
        if password is not None:
            raise SecuritySettingError("SSL trust store password cannot be specified for PEM format.")
        return checked_certificates(f"{name}: {location}", data.decode("ascii", "replace"))
    _check_binary(name, location, data, "ssl.truststore.type")
    found = _certificates_in(_opened_pkcs12(name, location, data, password))
    if not found:
        raise SecuritySettingError(f"{name}: {location} holds no certificates")
    return _as_pem(found).decode()


def checked_certificates(place: str, pem: str) -> str:
    """Return ``pem`` if it holds at least one certificate. Raises SecuritySettingError that names ``place``."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(_certificate_blocks(pem.encode()))
    except ValueError:
        found = []
    if not found:
        raise SecuritySettingError(f"{place} holds no certificates in PEM format")
    return _as_pem(found).decode()


def _read(name: str, location: str) -> bytes:
    try:
        with Path(location).open("rb") as file:
            return file.read(LARGEST_STORE_BYTES)
    except OSError as error:
        raise SecuritySettingError(f"{name}: cannot read {location}: {error.strerror}") from None


def _check_binary(name: str, location: str, data: bytes, type_key: str) -> None:
    """Raise SecuritySettingError for a file that is not PKCS12, with the way to convert it."""
    if data.startswith(JKS_MAGIC):
        raise SecuritySettingError(
            f"{name}: {location} is a JKS store, which Gregor does not read. Convert it: keytool -importkeystore "
            f"-srckeystore {location} -destkeystore {location}.p12 -deststoretype PKCS12; then set {type_key}=PKCS12"
        )
    if PEM_BEGIN in data:
        raise SecuritySettingError(f"{name}: {location} is in PEM format: set {type_key}=PEM")


def _opened_pkcs12(name: str, location: str, data: bytes, password: Password | None) -> PKCS12KeyAndCertificates:
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        return pkcs12.load_pkcs12(data, password.value.encode() if password else None)
    except ValueError:
        key = name.replace("location", "password")
        reason = f"{key} is wrong, or it is not a PKCS12 store" if password else f"{key} is missing"
        raise SecuritySettingError(f"{name}: cannot read {location}: {reason}") from None


def _certificates_in(store: PKCS12KeyAndCertificates) -> list[Certificate]:
    """Return the certificates of a store, that of its key first."""
    return [entry.certificate for entry in (store.cert, *store.additional_certs) if entry is not None]


def _from_pem(keys: bytes, chain: bytes, password: Password | None, place: str) -> KeyMaterial:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(_private_key_block(keys), password.value.encode() if password else None)
    except (ValueError, TypeError):
        # A type error is a password for a key that is not encrypted, or none for one that is.
        raise SecuritySettingError(
            f"{place}: no private key in PEM format that ssl.key.password opens"
            if password
            else f"{place}: no private key in PEM format that is readable without ssl.key.password"
        ) from None
    try:
        certificates = x509.load_pem_x509_certificates(_certificate_blocks(chain))
    except ValueError:
        raise SecuritySettingError(f"{place}: no certificate chain in PEM format") from None
    return _material(key, certificates)


def _private_key_block(pem: bytes) -> bytes:
    """Return the first block of a private key, without certificates before it."""
    for block in _blocks(pem):
        if b"PRIVATE KEY-----" in block.partition(b"\n")[0]:
            return block
    return b""


def _certificate_blocks(pem: bytes) -> bytes:
    return b"".join(block for block in _blocks(pem) if block.startswith(CERTIFICATE_BEGIN))


def _blocks(pem: bytes) -> list[bytes]:
    r"""Return the PEM blocks of a text, each in lines.

    A value of a properties file may have spaces, or a literal ``\n``, where a file has line breaks.
    """
    found = []
    for block in _BLOCK.finditer(pem.replace(b"\\n", b"\n")):
        label, body = block[1], block[2]
        lines = body.splitlines() if b"\n" in body.strip() else body.split()
        text = b"\n".join(line.strip() for line in lines)
        found.append(b"-----BEGIN %b-----\n%b\n-----END %b-----\n" % (label, text.strip(b"\n"), label))
    return found


def _material(key: Any, certificates: list[Certificate], alias: str = PEM_ALIAS) -> KeyMaterial:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyMaterial(private, _as_pem(certificates), tuple(certificates), alias)


def _as_pem(certificates: Iterable[Certificate]) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
