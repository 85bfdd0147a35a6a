"""Names of cipher suites: ``ssl.cipher.suites`` has the names of the IANA, which Java uses; OpenSSL has its own."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence

from .errors import SecuritySettingError

TLS_1_3_SUITES = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)
_SUITE = re.compile(r"TLS_(?P<exchange>[A-Z]+(?:_[A-Z]+)?)_WITH_(?P<cipher>[A-Z0-9_]+)")
_OPENSSL_WORDS = (
    (r"AES_(\d+)_CBC_", r"AES\1-"),
    (r"AES_(\d+)_", r"AES\1-"),
    (r"CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
)


def use_suites(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Restrict a context to these suites. Raises SecuritySettingError for a suite that OpenSSL does not offer.

    Python's ssl can only choose among the suites of TLS 1.2: where no suite of TLS 1.3 is named, TLS 1.3 is switched
    off; where one is named, all of OpenSSL's defaults for TLS 1.3 are offered.
    """
    older = [name for name in names if name not in TLS_1_3_SUITES]
    if len(older) == len(names):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    for name in older:
        try:
            context.set_ciphers(_openssl_name(name))
        except ssl.SSLError:
            raise SecuritySettingError(f"ssl.cipher.suites: {name} is not a cipher suite of this OpenSSL") from None
    context.set_ciphers(":".join(map(_openssl_name, older)))


def _openssl_name(name: str) -> str:
    """Return OpenSSL's name of a suite; a name that is not the IANA's is returned unchanged."""
    found = _SUITE.fullmatch(name)
    if found is None:
        return name
    cipher = found["cipher"]
    for pattern, replacement in _OPENSSL_WORDS:
        cipher, count = re.subn(pattern, replacement, cipher)
        if count:
            break
    exchange = "" if found["exchange"] == "RSA" else found["exchange"].replace("_", "-") + "-"
    return exchange + cipher.replace("_", "-")
