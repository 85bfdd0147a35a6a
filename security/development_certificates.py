"""Certificates for development and tests: a CA that exists only while it signs, and the identities that it signed."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, GeneralName, Name

CLOCK_SKEW = datetime.timedelta(hours=1)
"""The time before now at which certificates begin to be valid, for machines whose clocks differ."""


class Identity:
    """A private key with its certificate, and the certificate of its issuer."""

    def __init__(self, key: EllipticCurvePrivateKey, certificate: Certificate, issuer: Certificate) -> None:
        self._key = key
        self._certificate = certificate
        self._issuer = issuer

    @property
    def pem(self) -> bytes:
        """The key, not encrypted, and the chain: a keystore of type PEM."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        key = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + b"".join(one.public_bytes(Encoding.PEM) for one in (self._certificate, self._issuer))

    def pkcs12(self, password: str) -> bytes:
        """Return the same as a keystore of type PKCS12."""
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            b"identity", self._key, self._certificate, [self._issuer], encryption
        )


class DevelopmentAuthority:
    """A CA with a new key, which is never written anywhere: nobody can sign with it later."""

    def __init__(self, name: str, days: int) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        self._valid_for = datetime.timedelta(days=days)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._signed(_name(name), self._key, (), is_authority=True)

    @property
    def pem(self) -> bytes:
        """The CA's certificate: a truststore of type PEM."""
        from cryptography.hazmat.primitives.serialization import Encoding

        return self._certificate.public_bytes(Encoding.PEM)

    def truststore(self, password: str) -> bytes:
        """Return the same as a truststore of type PKCS12, as Java reads it."""
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

        entry = pkcs12.PKCS12Certificate(self._certificate, b"ca")
        return pkcs12.serialize_java_truststore([entry], BestAvailableEncryption(password.encode()))

    def identity(self, name: str, hosts: Sequence[str] = ()) -> Identity:
        """Return a new identity; a broker's has the names and addresses of its hosts."""
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        return Identity(key, self._signed(_name(name), key, hosts, is_authority=False), self._certificate)

    def _signed(
        self, name: Name, key: EllipticCurvePrivateKey, hosts: Sequence[str], *, is_authority: bool
    ) -> Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name if is_authority else self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(now + self._valid_for)
            .add_extension(
                x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        return builder.sign(self._key, hashes.SHA256())


def _name(common: str) -> Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(host: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
