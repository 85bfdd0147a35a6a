"""Certificates for tests: a CA and certificates that it signed, once for each process of tests."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A private key with its certificate and the certificate of the issuer."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    @property
    def key_pem(self) -> str:
        """The key, not encrypted."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def encrypted_key_pem(self, password: str) -> str:
        """Return the key, encrypted."""
        encryption = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    @property
    def chain_pem(self) -> str:
        """The certificate and its issuer's."""
        return as_pem(self.certificate) + as_pem(self.issuer)

    @property
    def pem(self) -> str:
        """The key and the chain, as a keystore of type PEM."""
        return self.key_pem + self.chain_pem

    def pkcs12(self, password: str) -> bytes:
        """Return a keystore of type PKCS12."""
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"key", self.key, self.certificate, [self.issuer], encryption)


def as_pem(certificate: x509.Certificate) -> str:
    """Return a certificate in PEM format."""
    return certificate.public_bytes(Encoding.PEM).decode()


def name(common: str) -> x509.Name:
    """Return a subject with an organization and a common name."""
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Test"), x509.NameAttribute(NameOID.COMMON_NAME, common)]
    )


def made(
    common: str,
    issuer: Identity | None,
    *,
    host: str = "localhost",
    expired: bool = False,
    subject: x509.Name | None = None,
) -> Identity:
    """Return a new identity; without an issuer it signs itself and is a CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject or name(common))
        .issuer_name(issuer.certificate.subject if issuer else name(common))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 30 * DAY)
        .not_valid_after(now - DAY if expired else now + 30 * DAY)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer is not None:
        names: list[x509.GeneralName] = [x509.DNSName(host)]
        if host == "localhost":
            names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(issuer.key if issuer else key, hashes.SHA256())
    return Identity(key, certificate, issuer.certificate if issuer else certificate)


@cache
def authority() -> Identity:
    """Return the CA that tests trust."""
    return made("test CA", None)


@cache
def other_authority() -> Identity:
    """Return a CA that no broker or client trusts."""
    return made("other CA", None)


@cache
def broker_identity() -> Identity:
    """Return the broker's identity, for localhost."""
    return made("broker", authority())


@cache
def client_identity() -> Identity:
    """Return a client's identity, CN=client,O=Test."""
    return made("client", authority())


def written(directory: Path, file: str, content: str | bytes) -> str:
    """Write a file, and return its path as text."""
    path = directory / file
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)
