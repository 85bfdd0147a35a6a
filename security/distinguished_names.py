"""The name of a client in its certificate, as Java's ``X500Principal.getName()`` writes it (RFC 2253).

ACLs and ``super.users`` of a cluster are written for these names, so every detail of Java's form matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.x509 import Name, NameAttribute

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that RFC 2253 names; Java writes any other as its number with the encoded value in hexadecimal."""
SPECIAL = frozenset(',+"\\<>;=')


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER format. Raises ValueError for malformed bytes."""
    from cryptography import x509

    return rfc_2253_name(x509.load_der_x509_certificate(certificate).subject)


def rfc_2253_name(name: Name, separator: str = ",") -> str:
    """Return a name in the order of RFC 2253, its last part first."""
    return separator.join("+".join(map(_attribute, part)) for part in reversed(name.rdns))


def _attribute(attribute: NameAttribute[str | bytes]) -> str:
    number = attribute.oid.dotted_string
    keyword = KEYWORDS.get(number)
    if keyword is None or not isinstance(attribute.value, str):
        return f"{number}=#{_encoded(attribute).hex()}"
    return f"{keyword}={_escaped(attribute.value)}"


def _encoded(attribute: NameAttribute[str | bytes]) -> bytes:
    """Return the value's DER encoding: its tag, its length and its bytes."""
    value = attribute.value
    tag: int = attribute._type.value
    body = value if isinstance(value, bytes) else value.encode({30: "utf-16-be", 28: "utf-32-be"}.get(tag, "utf-8"))
    size = len(body)
    if size < 0x80:
        return bytes((tag, size)) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + body


def _escaped(value: str) -> str:
    """Return a value with a backslash before special characters, and before a space or ``#`` at its ends."""
    escaped = "".join("\\" + character if character in SPECIAL else character for character in value)
    if escaped.startswith((" ", "#")):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(escaped) > 1 and not escaped.endswith("\\ "):
        escaped = escaped[:-1] + "\\ "
    return escaped
