"""The settings of a store's client: its address and credentials, and how long a request may take."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

PREFIXES = {"s3": "AWS_", "gcs": "GOOGLE_", "azure": "AZURE_"}
"""The beginning of the environment variables that hold settings, in the words of obstore and the vendors' tools."""

CREDENTIALS = {
    "s3": (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_TOKEN",
        "AWS_SKIP_SIGNATURE",
        "AWS_ROLE_ARN",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
    ),
    "gcs": (
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_BEARER_TOKEN",
        "GOOGLE_SKIP_SIGNATURE",
    ),
    "azure": (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_MASTER_KEY",
        "AZURE_CLIENT_ID",
        "AZURE_STORAGE_CLIENT_ID",
        "AZURE_CLIENT_SECRET",
        "AZURE_STORAGE_CLIENT_SECRET",
        "AZURE_TENANT_ID",
        "AZURE_STORAGE_TENANT_ID",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_TOKEN",
        "AZURE_FEDERATED_TOKEN_FILE",
        "AZURE_CREDENTIAL_TYPE",
        "AZURE_SKIP_SIGNATURE",
        "AZURE_USE_AZURE_CLI",
    ),
}
"""The variables that say who asks. Those of two sources are never mixed: a key needs its own secret and token."""

ADDRESSES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gcs": ("GOOGLE_BASE_URL",),
    "azure": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""The variables that say where the store is: they are names of one setting, too."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The time limits of a store's client, in seconds, and the number of times that it repeats a request."""

    connect_s: float = 10.0
    request_s: float = 60.0
    """The time from the beginning of a request to the end of its answer."""
    retries: int = 6
    total_s: float = 180.0
    """The time after which nothing is tried again."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The settings of a store: variables of the environment by name, in order, and limits. They can be pickled."""

    variables: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    limits: Limits = field(default_factory=Limits)
    proxy_url: str | None = None

    @classmethod
    def of_environment(cls, kind: str) -> StoreSettings:
        """Return those of this process's environment for a kind of store: "s3", "gcs" or "azure"."""
        prefix = PREFIXES[kind]
        return cls(tuple(sorted((name, text) for name, text in os.environ.items() if name.startswith(prefix))))

    def with_variables(self, kind: str, chosen: Mapping[str, str]) -> StoreSettings:
        """Return these settings with others above them; credentials and addresses are replaced as a whole."""
        found = dict(self.variables)
        for names in (CREDENTIALS[kind], ADDRESSES[kind]):
            if any(name in chosen for name in names):
                found = {name: text for name, text in found.items() if name not in names}
        return StoreSettings(tuple(sorted({**found, **chosen}.items())), self.limits, self.proxy_url)


def replaced_variables(kind: str, environment: StoreSettings, chosen: Mapping[str, str]) -> list[str]:
    """Return the names of variables of the environment that other settings replace by another value."""
    replaced = []
    for name, text in environment.variables:
        groups = [names for names in (CREDENTIALS[kind], ADDRESSES[kind]) if name in names]
        names = groups[0] if groups else (name,)
        if any(each in chosen for each in names) and text not in {chosen.get(each) for each in names}:
            replaced.append(name)
    return replaced
