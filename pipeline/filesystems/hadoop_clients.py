"""The settings that Spark and Hadoop have for S3, Azure and Google, in the words of the stores' client here.

Sources: Hadoop 3.4 (hadoop-aws and hadoop-azure, core-default.xml) and the Cloud Storage connector 3 and 4
(CONFIGURATION.md). A setting that this client cannot follow, and without which requests would be made as somebody else,
raises OptionError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import OptionError
from .hadoop_values import AccountValues, BucketValues, HadoopValues
from .store_settings import Limits

_ANY_PLACE = re.compile(r"^s3[.-](?:dualstack\.)?([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?$")
_NO_KEYS = (
    "EnvironmentVariable",
    "SystemProperty",
    "IAMInstance",
    "InstanceProfile",
    "Profile",
    "WebIdentity",
    "Container",
    "Default",
)
"""The beginnings of names of classes that find credentials themselves, as this client does."""


@dataclass(slots=True)
class ClientSettings:
    """The settings found: variables in the words of the vendors' tools, limits and a proxy."""

    variables: dict[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    proxy_url: str | None = None

    def take(self, name: str, text: str | None) -> None:
        """Set a variable, if it has a value."""
        if text is not None:
            self.variables[name] = text

    def limit(self, **found: float | None) -> None:
        """Set the limits that have a value."""
        self.limits = replace(self.limits, **{name: value for name, value in found.items() if value is not None})  # type: ignore[arg-type]


def client_settings(uri: str, kind: str, hadoop: Mapping[str, str]) -> ClientSettings:
    """Return the settings of Hadoop for the store of a URI; `kind` is "s3", "gcs" or "azure". Raises OptionError."""
    place = urlsplit(uri)
    if kind == "s3":
        return _s3(BucketValues(hadoop, place.netloc), place.netloc)
    if kind == "gcs":
        return _google(HadoopValues(hadoop))
    return _azure(AccountValues(hadoop, place.username or place.netloc, place.hostname or ""))


# --- S3 ---


def _s3(values: BucketValues, bucket: str) -> ClientSettings:
    found = ClientSettings()
    _s3_address(values, bucket, found)
    _s3_credentials(values, found)
    algorithm = values.text("fs.s3a.encryption.algorithm", "fs.s3a.server-side-encryption-algorithm")
    if algorithm:
        words = {"SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse", "SSE-S3": "AES256"}
        found.take("AWS_SERVER_SIDE_ENCRYPTION", words.get(algorithm, algorithm))
        found.take("AWS_SSE_KMS_KEY_ID", values.text("fs.s3a.encryption.key", "fs.s3a.server-side-encryption.key"))
    if values.flag("fs.s3a.requester.pays.enabled"):
        found.take("AWS_REQUEST_PAYER", "true")
    if host := values.text("fs.s3a.proxy.host"):
        port = values.text("fs.s3a.proxy.port")
        found.proxy_url = f"http://{host}:{port}" if port else f"http://{host}"
    found.limit(
        connect_s=values.seconds("fs.s3a.connection.establish.timeout"),
        request_s=values.seconds("fs.s3a.connection.request.timeout") or values.seconds("fs.s3a.connection.timeout"),
        retries=values.number("fs.s3a.attempts.maximum"),
    )
    return found


def _s3_address(values: BucketValues, bucket: str, found: ClientSettings) -> None:
    region = values.text("fs.s3a.endpoint.region")
    endpoint = values.text("fs.s3a.endpoint")
    if endpoint:
        scheme = "http" if values.flag("fs.s3a.connection.ssl.enabled") is False else "https"
        url = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        host = urlsplit(url).hostname or ""
        amazon = _ANY_PLACE.match(host)
        if host == "s3.amazonaws.com" or amazon:
            # The client knows the addresses of Amazon by region.
            region = region or (amazon[1] if amazon else None)
        elif values.flag("fs.s3a.path.style.access") is False:
            found.take("AWS_ENDPOINT_URL", url.replace("://", f"://{bucket}.", 1))
            found.take("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")
        else:
            found.take("AWS_ENDPOINT_URL", url)
            found.take("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false")
            region = region or "us-east-1"
    found.take("AWS_REGION", region)


def _s3_credentials(values: BucketValues, found: ClientSettings) -> None:
    key, secret = values.text("fs.s3a.access.key"), values.text("fs.s3a.secret.key")
    classes = re.split(r"[,\s]+", values.text("fs.s3a.aws.credentials.provider") or "")
    providers = [name.rpartition(".")[2] for name in classes if name]
    takes_keys = not providers or any(name.startswith(("Simple", "Temporary")) for name in providers)
    if (key is None) != (secret is None) and takes_keys:
        name = values.name_of("fs.s3a.access.key" if secret is None else "fs.s3a.secret.key")
        raise OptionError(f"{name} is set without {'fs.s3a.secret.key' if secret is None else 'fs.s3a.access.key'}")
    if key is not None and takes_keys:
        found.take("AWS_ACCESS_KEY_ID", key)
        found.take("AWS_SECRET_ACCESS_KEY", secret)
        found.take("AWS_SESSION_TOKEN", values.text("fs.s3a.session.token"))
        return
    if providers and providers[0].startswith("Anonymous"):
        found.take("AWS_SKIP_SIGNATURE", "true")
        return
    if providers and not any(name.startswith(_NO_KEYS) for name in providers):
        raise OptionError(
            f"{values.name_of('fs.s3a.aws.credentials.provider')}={providers[0]}: only Spark can use this class; set "
            "fs.s3a.access.key and fs.s3a.secret.key, or a role or profile of the AWS tools"
        )


# --- Azure ---


def _azure(values: AccountValues) -> ClientSettings:
    found = ClientSettings()
    kind = values.text("fs.azure.account.auth.type")
    if kind == "OAuth":
        _azure_token(values, found)
    elif kind == "SAS" or (kind is None and values.text("fs.azure.sas.fixed.token")):
        token = values.text("fs.azure.sas.fixed.token")
        if token is None:
            raise OptionError(
                f"{values.name_of('fs.azure.account.auth.type')}=SAS needs fs.azure.sas.fixed.token: token providers "
                "are classes that only Spark can use"
            )
        found.take("AZURE_STORAGE_SAS_KEY", token.removeprefix("?"))
    elif kind in (None, "SharedKey"):
        found.take("AZURE_STORAGE_ACCOUNT_KEY", values.text("fs.azure.account.key"))
    else:
        raise OptionError(
            f"{values.name_of('fs.azure.account.auth.type')}={kind}: only SharedKey, OAuth and SAS can be used here"
        )
    found.limit(
        connect_s=values.seconds("fs.azure.http.connection.timeout"),
        request_s=values.seconds("fs.azure.http.read.timeout"),
        retries=values.number("fs.azure.io.retry.max.retries"),
    )
    return found


def _azure_token(values: AccountValues, found: ClientSettings) -> None:
    key = "fs.azure.account.oauth.provider.type"
    provider = (values.text(key) or "ClientCredsTokenProvider").rpartition(".")[2]
    endpoint = urlsplit(values.text("fs.azure.account.oauth2.client.endpoint") or "")
    found.take("AZURE_CLIENT_ID", values.text("fs.azure.account.oauth2.client.id"))
    tenant = values.text("fs.azure.account.oauth2.msi.tenant") or endpoint.path.strip("/").partition("/")[0] or None
    if provider == "ClientCredsTokenProvider":
        secret = values.text("fs.azure.account.oauth2.client.secret")
        if not (secret and tenant and "AZURE_CLIENT_ID" in found.variables):
            raise OptionError(
                f"{values.name_of('fs.azure.account.auth.type')}=OAuth needs fs.azure.account.oauth2.client.id, "
                ".client.secret and .client.endpoint"
            )
        found.take("AZURE_CLIENT_SECRET", secret)
        found.take("AZURE_TENANT_ID", tenant)
        found.take("AZURE_AUTHORITY_HOST", f"{endpoint.scheme}://{endpoint.netloc}")
    elif provider == "WorkloadIdentityTokenProvider":
        found.take("AZURE_TENANT_ID", tenant)
        found.take("AZURE_FEDERATED_TOKEN_FILE", values.text("fs.azure.account.oauth2.token.file"))
    elif provider == "MsiTokenProvider":
        found.take("AZURE_CREDENTIAL_TYPE", "managed_identity")
        found.take("AZURE_MSI_ENDPOINT", values.text("fs.azure.account.oauth2.msi.endpoint"))
    else:
        raise OptionError(
            f"{values.name_of(key)}={provider}: only ClientCredsTokenProvider, WorkloadIdentityTokenProvider and "
            "MsiTokenProvider can be used here"
        )


# --- Google ---


def _google(values: HadoopValues) -> ClientSettings:
    found = ClientSettings()
    url = values.text("fs.gs.storage.root.url")
    found.take("GOOGLE_BASE_URL", url and url.rstrip("/"))
    kinds = ("fs.gs.auth.type", "google.cloud.auth.type")
    kind = values.text(*kinds)
    files = (
        "fs.gs.auth.service.account.json.keyfile",
        "google.cloud.auth.service.account.json.keyfile",
    )
    path = values.text(*files)
    is_open = values.flag("fs.gs.auth.null.enable", "google.cloud.auth.null.enable")
    is_account = values.flag("fs.gs.auth.service.account.enable", "google.cloud.auth.service.account.enable")
    if kind == "UNAUTHENTICATED" or (kind is None and is_open):
        found.take("GOOGLE_SKIP_SIGNATURE", "true")
    elif kind == "SERVICE_ACCOUNT_JSON_KEYFILE" or (kind is None and path and is_account is not False):
        if path is None:
            raise OptionError(f"{values.name_of(*kinds)}={kind} needs {files[0]}")
        try:
            # The text: the executors need no file.
            found.take("GOOGLE_SERVICE_ACCOUNT_KEY", Path(path).read_text())
        except OSError as fault:
            raise OptionError(f"{values.name_of(*files)}: {path} cannot be read: {fault.strerror}") from fault
    elif kind not in (None, "APPLICATION_DEFAULT", "COMPUTE_ENGINE"):
        raise OptionError(
            f"{values.name_of(*kinds)}={kind}: only SERVICE_ACCOUNT_JSON_KEYFILE, APPLICATION_DEFAULT, COMPUTE_ENGINE "
            "and UNAUTHENTICATED can be used here"
        )
    found.limit(
        connect_s=values.seconds("fs.gs.http.connect-timeout"),
        request_s=values.seconds("fs.gs.http.read-timeout"),
        retries=values.number("fs.gs.http.max.retry"),
    )
    return found
