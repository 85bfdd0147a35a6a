"""TLS settings under Kafka's names (``ssl.*``), and the contexts of the standard library that they describe."""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

from .cipher_suites import use_suites
from .errors import SecuritySettingError
from .password import Password
from .stores import STORE_TYPES, KeyMaterial, checked_certificates, inline_key_material, read_keystore, read_truststore

PROTOCOLS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
OUT_OF_DATE_CODES = (9, 10)
"""OpenSSL's codes for certificates that are not valid yet, or that have expired (X509_V_ERR_...)."""
UNTRUSTED_CODES = (18, 19, 20, 21)
"""OpenSSL's codes for certificates whose chain does not end in a trusted one (X509_V_ERR_...)."""
CLIENT_AUTHENTICATION = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
IGNORED_KEYS = (
    "ssl.provider",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation",
    "ssl.engine.factory.class",
)
"""Keys that choose among implementations in Java."""
TLS_KEYS = (
    "ssl.protocol",
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.endpoint.identification.algorithm",
    *IGNORED_KEYS,
)
SECRET_TLS_KEYS = frozenset(
    {
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
    }
)
"""The keys of type PASSWORD in Kafka."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The TLS settings of a listener or of a client; an unset value is None, or Kafka's default."""

    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    protocol: str = "TLSv1.3"
    cipher_suites: tuple[str, ...] = ()
    keystore_type: str = "JKS"
    keystore_location: str | None = None
    keystore_password: Password | None = None
    keystore_key: Password | None = None
    keystore_certificate_chain: Password | None = None
    key_password: Password | None = None
    truststore_type: str = "JKS"
    truststore_location: str | None = None
    truststore_password: Password | None = None
    truststore_certificates: Password | None = None
    endpoint_identification_algorithm: str = "https"
    client_auth: str = "none"

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> TlsSettings:
        """Return the settings in the ``ssl.*`` keys of ``properties``; empty values count as unset.

        Raises SecuritySettingError that names the key.
        """
        found = {name: text for name, text in properties.items() if text or name.endswith(".algorithm")}

        def secret(name: str) -> Password | None:
            return Password(found[name]) if name in found else None

        settings = cls(
            enabled_protocols=_words(found.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3")),
            protocol=found.get("ssl.protocol", "TLSv1.3"),
            cipher_suites=_words(found.get("ssl.cipher.suites", "")),
            keystore_type=_store_type("ssl.keystore.type", found),
            keystore_location=found.get("ssl.keystore.location"),
            keystore_password=secret("ssl.keystore.password"),
            keystore_key=secret("ssl.keystore.key"),
            keystore_certificate_chain=secret("ssl.keystore.certificate.chain"),
            key_password=secret("ssl.key.password"),
            truststore_type=_store_type("ssl.truststore.type", found),
            truststore_location=found.get("ssl.truststore.location"),
            truststore_password=secret("ssl.truststore.password"),
            truststore_certificates=secret("ssl.truststore.certificates"),
            endpoint_identification_algorithm=found.get("ssl.endpoint.identification.algorithm", "https"),
            client_auth=found.get("ssl.client.auth", "none"),
        )
        settings._check()
        return settings

    def _check(self) -> None:
        for name in self.enabled_protocols:
            if name not in PROTOCOLS:
                raise SecuritySettingError(
                    f"ssl.enabled.protocols: {name} is not one of {', '.join(PROTOCOLS)}, which OpenSSL offers"
                )
        if self.protocol not in (*PROTOCOLS, "TLS"):
            raise SecuritySettingError(f"ssl.protocol: {self.protocol} is not one of TLS, {', '.join(PROTOCOLS)}")
        if self.client_auth not in CLIENT_AUTHENTICATION:
            raise SecuritySettingError(
                f"Invalid value {self.client_auth} for configuration ssl.client.auth: String must be one of: "
                "required, requested, none"
            )
        if self.endpoint_identification_algorithm.lower() not in ("", "https"):
            raise SecuritySettingError(
                "ssl.endpoint.identification.algorithm must be https or empty, not "
                f"{self.endpoint_identification_algorithm}"
            )
        self._check_inline()

    def _check_inline(self) -> None:
        """Raise SecuritySettingError where inline certificates are combined with files, as Kafka does."""
        if self.keystore_key is not None:
            if self.keystore_type != "PEM":
                raise SecuritySettingError(
                    "SSL private key can be specified only for PEM, but key store type is " + self.keystore_type + "."
                )
            if self.keystore_location is not None:
                raise SecuritySettingError(
                    "Both SSL key store location and separate private key are specified: remove ssl.keystore.location "
                    "or ssl.keystore.key"
                )
            if self.keystore_certificate_chain is None:
                raise SecuritySettingError("SSL private key is specified, but certificate chain is not specified.")
        elif self.keystore_certificate_chain is not None:
            raise SecuritySettingError("SSL certificate chain is specified, but private key is not specified")
        if self.truststore_certificates is not None:
            if self.truststore_type != "PEM":
                raise SecuritySettingError(
                    "SSL trust store certs can be specified only for PEM, but trust store type is "
                    + self.truststore_type
                    + "."
                )
            if self.truststore_location is not None:
                raise SecuritySettingError(
                    "Both SSL trust store location and separate trust certificates are specified: remove "
                    "ssl.truststore.location or ssl.truststore.certificates"
                )

    def without_client_certificates(self) -> TlsSettings:
        """Return the same settings for a listener that demands no certificate of its clients."""
        return replace(self, client_auth="none")

    def key_material(self) -> KeyMaterial | None:
        """Read the keystore; return None if none is configured. Raises SecuritySettingError."""
        if self.keystore_key is not None and self.keystore_certificate_chain is not None:
            return inline_key_material(self.keystore_key, self.keystore_certificate_chain.value, self.key_password)
        if self.keystore_location is None:
            return None
        if self.keystore_type != "PEM" and self.keystore_password is None:
            raise SecuritySettingError("SSL key store is specified, but key store password is not specified.")
        return read_keystore(self.keystore_location, self.keystore_type, self.keystore_password, self.key_password)

    @property
    def files(self) -> list[str]:
        """The files of the stores."""
        return [location for location in (self.keystore_location, self.truststore_location) if location is not None]

    def with_contents(self) -> TlsSettings:
        """Return the same settings with the contents of the stores in place of their files.

        Raises SecuritySettingError.
        """
        inline = replace(self)
        material = self.key_material()
        if material is not None:
            inline = replace(
                inline,
                keystore_type="PEM",
                keystore_location=None,
                keystore_password=None,
                keystore_key=Password(material.private_key.decode()),
                keystore_certificate_chain=Password(material.chain.decode()),
                key_password=None,
            )
        if self.truststore_location is not None:
            trusted = read_truststore(self.truststore_location, self.truststore_type, self.truststore_password)
            inline = replace(
                inline,
                truststore_type="PEM",
                truststore_location=None,
                truststore_password=None,
                truststore_certificates=Password(trusted),
            )
        return inline

    @property
    def has_truststore(self) -> bool:
        """Whether the trusted certificates are configured, rather than those of the operating system."""
        return self.truststore_location is not None or self.truststore_certificates is not None

    def server_material(self) -> KeyMaterial:
        """Read the keystore of a listener. Raises SecuritySettingError, also if none is configured."""
        material = self.key_material()
        if material is None:
            raise SecuritySettingError(
                "an SSL listener needs a certificate: set ssl.keystore.location, or ssl.keystore.key and "
                "ssl.keystore.certificate.chain"
            )
        return material

    def server_context(self, material: KeyMaterial | None = None) -> ssl.SSLContext:
        """Return the context of a listener, with a key that was read or that of its keystore.

        Raises SecuritySettingError.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._prepare(context, material or self.server_material())
        context.verify_mode = CLIENT_AUTHENTICATION[self.client_auth]
        return context

    def client_context(self, material: KeyMaterial | None = None) -> ssl.SSLContext:
        """Return the context of a client, with a key that was read or that of its keystore, if it has one.

        Raises SecuritySettingError.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if not self.endpoint_identification_algorithm:
            context.check_hostname = False
        self._prepare(context, material or self.key_material())
        return context

    def _prepare(self, context: ssl.SSLContext, material: KeyMaterial | None) -> None:
        versions = sorted(PROTOCOLS[name] for name in self.enabled_protocols)
        if not versions:
            raise SecuritySettingError("ssl.enabled.protocols is empty")
        with warnings.catch_warnings():
            # Versions before 1.2 are not offered unless the operator names them, for clients that have no other.
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version, context.maximum_version = versions[0], versions[-1]
        if versions[0] < ssl.TLSVersion.TLSv1_2:
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        if self.cipher_suites:
            use_suites(context, self.cipher_suites)
        if material is not None:
            try:
                material.load_into(context)
            except ssl.SSLError as error:
                raise SecuritySettingError(f"ssl.keystore: OpenSSL refuses the key: {error.reason}") from None
        self._load_trusted(context)

    def _load_trusted(self, context: ssl.SSLContext) -> None:
        # Java trusts each certificate of a truststore, also one that is not the root of its chain.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self.truststore_certificates is not None:
            trusted = checked_certificates("ssl.truststore.certificates", self.truststore_certificates.value)
        elif self.truststore_location is not None:
            trusted = read_truststore(self.truststore_location, self.truststore_type, self.truststore_password)
        else:
            context.load_default_certs()
            return
        context.load_verify_locations(cadata=trusted)


def certificate_hint(error: BaseException | None) -> str:
    """Return what to change for a broker's certificate that was refused, nothing for other errors."""
    code = getattr(error, "verify_code", 0)
    if code in UNTRUSTED_CODES:
        return "; set ssl.truststore.location to a file with the CA that signed the broker's certificate"
    if code in OUT_OF_DATE_CODES:
        return "; renew the certificate in the broker's ssl.keystore.location, or correct the clock of this machine"
    return ""


def tls_refusal(error: BaseException | None) -> str | None:
    """Return the alert by which the other side refused a connection, None for any other end.

    In TLS 1.3 a client has completed its handshake when a broker refuses the client's certificate.
    """
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return f"SSL handshake failed: {reason.replace('_', ' ').lower()}" if reason and "ALERT" in reason else None


def _store_type(name: str, found: Mapping[str, str]) -> str:
    store_type = found.get(name, "JKS").upper()
    if store_type not in STORE_TYPES:
        raise SecuritySettingError(f"{name}: {found[name]} is not one of {', '.join(STORE_TYPES)}")
    return store_type


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in text.split(","))))
