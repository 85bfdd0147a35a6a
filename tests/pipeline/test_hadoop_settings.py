"""What Spark and Hadoop are configured with for S3, Azure and Google, in the words of the client here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.pipeline.errors import OptionError, PipelineError
from gregor.pipeline.filesystems.hadoop_clients import client_settings
from gregor.pipeline.filesystems.locations import location, settings_notes
from gregor.pipeline.filesystems.object_store import _settings_here
from gregor.pipeline.filesystems.store_settings import Limits, StoreSettings
from gregor.pipeline.hadoop_configuration import hadoop_settings, use_settings

KINDS = {"s3a": "s3", "gs": "gcs", "abfss": "azure"}
ACCOUNT = "shop.dfs.core.windows.net"
KEYS = {"fs.s3a.access.key": "AK", "fs.s3a.secret.key": "SK"}
SENT_KEYS = {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK"}
OAUTH = {
    "fs.azure.account.auth.type": "OAuth",
    "fs.azure.account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
    "fs.azure.account.oauth2.client.id": "me",
    "fs.azure.account.oauth2.client.secret": "secret",
    "fs.azure.account.oauth2.client.endpoint": "https://login.microsoftonline.com/tenant/oauth2/token",
}


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Let nothing but the test's settings be found."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_", "HADOOP_", "PYSPARK_SUBMIT")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    use_settings({})
    yield
    use_settings({})


def variables(uri: str, settings: dict[str, str]) -> dict[str, str]:
    return client_settings(uri, KINDS[uri.partition(":")[0]], settings).variables


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        (KEYS, SENT_KEYS),
        ({**KEYS, "fs.s3a.session.token": "T"}, {**SENT_KEYS, "AWS_SESSION_TOKEN": "T"}),
        (
            {"fs.s3a.endpoint": "http://minio:9000", "fs.s3a.path.style.access": "true"},
            {
                "AWS_ENDPOINT_URL": "http://minio:9000",
                "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
                "AWS_REGION": "us-east-1",
            },
        ),
        (
            {"fs.s3a.endpoint": "store.local", "fs.s3a.path.style.access": "false", "fs.s3a.endpoint.region": "r"},
            {
                "AWS_ENDPOINT_URL": "https://lake.store.local",
                "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
                "AWS_REGION": "r",
            },
        ),
        (
            {"fs.s3a.endpoint": "minio:9000", "fs.s3a.connection.ssl.enabled": "false"},
            {
                "AWS_ENDPOINT_URL": "http://minio:9000",
                "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
                "AWS_REGION": "us-east-1",
            },
        ),
        ({"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"}, {"AWS_REGION": "eu-west-1"}),
        ({"fs.s3a.endpoint": "s3.amazonaws.com"}, {}),
        ({"fs.s3a.access.key": "no", "fs.s3a.bucket.lake.access.key": "AK", "fs.s3a.secret.key": "SK"}, SENT_KEYS),
        ({"fs.s3a.bucket.other.access.key": "no", "fs.s3a.bucket.other.secret.key": "no"}, {}),
        (
            {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
            {"AWS_SKIP_SIGNATURE": "true"},
        ),
        ({"fs.s3a.aws.credentials.provider": "a.b.IAMInstanceCredentialsProvider", **KEYS}, {}),
        (
            {"fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.key": "arn"},
            {"AWS_SERVER_SIDE_ENCRYPTION": "aws:kms", "AWS_SSE_KMS_KEY_ID": "arn"},
        ),
    ],
)
def test_settings_of_s3a(settings: dict[str, str], expected: dict[str, str]) -> None:
    assert variables("s3a://lake", settings) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({f"fs.azure.account.key.{ACCOUNT}": "K"}, {"AZURE_STORAGE_ACCOUNT_KEY": "K"}),
        ({"fs.azure.account.key.other.dfs.core.windows.net": "K"}, {}),
        (
            OAUTH,
            {
                "AZURE_CLIENT_ID": "me",
                "AZURE_CLIENT_SECRET": "secret",
                "AZURE_TENANT_ID": "tenant",
                "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.com",
            },
        ),
        (
            {f"{key}.{ACCOUNT}": text for key, text in OAUTH.items()},
            {
                "AZURE_CLIENT_ID": "me",
                "AZURE_CLIENT_SECRET": "secret",
                "AZURE_TENANT_ID": "tenant",
                "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.com",
            },
        ),
        (
            {f"fs.azure.account.auth.type.{ACCOUNT}": "SAS", f"fs.azure.sas.fixed.token.lake.{ACCOUNT}": "?sv=1"},
            {"AZURE_STORAGE_SAS_KEY": "sv=1"},
        ),
        (
            {
                "fs.azure.account.auth.type": "OAuth",
                "fs.azure.account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.MsiTokenProvider",
            },
            {"AZURE_CREDENTIAL_TYPE": "managed_identity"},
        ),
    ],
)
def test_settings_of_azure(settings: dict[str, str], expected: dict[str, str]) -> None:
    assert variables(f"abfss://lake@{ACCOUNT}", settings) == expected


def test_settings_of_google(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    path.write_text("{}")
    key = {"GOOGLE_SERVICE_ACCOUNT_KEY": "{}"}
    assert variables("gs://lake", {"google.cloud.auth.service.account.json.keyfile": str(path)}) == key
    settings = {
        "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
        "fs.gs.auth.service.account.json.keyfile": str(path),
    }
    assert variables("gs://lake", settings) == key
    assert variables("gs://lake", {"google.cloud.auth.null.enable": "true"}) == {"GOOGLE_SKIP_SIGNATURE": "true"}
    assert variables("gs://lake", {"fs.gs.auth.type": "APPLICATION_DEFAULT"}) == {}
    assert variables("gs://lake", {"fs.gs.storage.root.url": "http://h:1/"}) == {"GOOGLE_BASE_URL": "http://h:1"}


@pytest.mark.parametrize(
    ("uri", "settings", "message"),
    [
        ("s3a://lake", {"fs.s3a.access.key": "AK"}, "spark.hadoop.fs.s3a.access.key is set without fs.s3a.secret.key"),
        (
            "s3a://lake",
            {"fs.s3a.bucket.lake.secret.key": "SK"},
            "spark.hadoop.fs.s3a.bucket.lake.secret.key is set without fs.s3a.access.key",
        ),
        ("s3a://lake", {"fs.s3a.path.style.access": "yes", "fs.s3a.endpoint": "h"}, "'yes' is not true or false"),
        ("s3a://lake", {"fs.s3a.connection.timeout": "soon"}, "'soon' is not a time"),
        ("s3a://lake", {"fs.s3a.attempts.maximum": "-1"}, "'-1' is not a number"),
        ("s3a://lake", {"fs.s3a.aws.credentials.provider": "com.shop.Vault"}, "Vault: only Spark can use this class"),
        (f"abfss://c@{ACCOUNT}", {"fs.azure.account.auth.type": "Custom"}, "only SharedKey, OAuth and SAS"),
        (f"abfss://c@{ACCOUNT}", {"fs.azure.account.auth.type": "OAuth"}, "OAuth needs fs.azure.account.oauth2"),
        (f"abfss://c@{ACCOUNT}", {"fs.azure.account.auth.type": "SAS"}, "SAS needs fs.azure.sas.fixed.token"),
        ("gs://lake", {"google.cloud.auth.service.account.json.keyfile": "/no"}, "/no cannot be read: No such file"),
        ("gs://lake", {"fs.gs.auth.type": "USER_CREDENTIALS"}, "USER_CREDENTIALS: only SERVICE_ACCOUNT_JSON_KEYFILE"),
    ],
)
def test_settings_that_cannot_be_used_are_named(uri: str, settings: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        variables(uri, settings)


@pytest.mark.parametrize(
    ("uri", "settings", "limits"),
    [
        ("s3a://lake", {}, Limits()),
        ("s3a://lake", {"fs.s3a.connection.timeout": "200000"}, Limits(request_s=200.0)),
        (
            "s3a://lake",
            {"fs.s3a.connection.request.timeout": "0", "fs.s3a.connection.timeout": "20s"},
            Limits(request_s=20.0),
        ),
        ("s3a://lake", {"fs.s3a.connection.request.timeout": "2m"}, Limits(request_s=120.0)),
        (
            "s3a://lake",
            {"fs.s3a.connection.establish.timeout": "5s", "fs.s3a.attempts.maximum": "3"},
            Limits(connect_s=5.0, retries=3),
        ),
        (
            f"abfss://c@{ACCOUNT}",
            {"fs.azure.http.connection.timeout": "2000", "fs.azure.http.read.timeout": "30000"},
            Limits(connect_s=2.0, request_s=30.0),
        ),
        (
            "gs://lake",
            {"fs.gs.http.read-timeout": "5000", "fs.gs.http.max.retry": "2"},
            Limits(request_s=5.0, retries=2),
        ),
    ],
)
def test_limits(uri: str, settings: dict[str, str], limits: Limits) -> None:
    assert client_settings(uri, KINDS[uri.partition(":")[0]], settings).limits == limits


def test_sources_of_settings_from_the_weakest_to_the_strongest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="Spark's settings need gregor-broker[spark]")
    properties = "".join(
        f"<property><name>fs.s3a.{name}</name><value> site </value></property>" for name in ("one", "two", "three")
    )
    (tmp_path / "core-site.xml").write_text(f"<?xml version='1.0'?><configuration>{properties}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.hadoop.fs.s3a.two file\nspark.hadoop.fs.s3a.three file\nspark.app.name fs.s3a\n"
    )
    monkeypatch.setenv("FROM_OUTSIDE", "secret")
    use_settings(
        {"spark.hadoop.fs.s3a.three": "given", "spark.hadoop.fs.s3a.four": "${env.FROM_OUTSIDE}", "fs.gs.a": "b"}
    )
    assert hadoop_settings() == {
        "fs.s3a.one": "site",
        "fs.s3a.two": "file",
        "fs.s3a.three": "given",
        "fs.s3a.four": "secret",
        "fs.gs.a": "b",
    }
    (tmp_path / "core-site.xml").write_text("<configuration>")
    use_settings({})
    with pytest.raises(PipelineError, match=r"core-site\.xml cannot be read"):
        hadoop_settings()


def test_settings_of_a_running_session_are_used(spark: object) -> None:
    from pyspark.sql import SparkSession

    assert isinstance(spark, SparkSession)
    spark.conf.set("fs.azure.account.key.shop.dfs.core.windows.net", "K")
    try:
        use_settings({})
        assert hadoop_settings()["fs.azure.account.key.shop.dfs.core.windows.net"] == "K"
    finally:
        spark.conf.unset("fs.azure.account.key.shop.dfs.core.windows.net")
        use_settings({})


def test_credentials_of_two_sources_are_not_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore", reason="stores need gregor-broker[s3]: `make pipeline` installs it")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "theirs")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "theirs")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "theirs")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://theirs")
    place = location("s3a://lake/a")
    assert settings_notes([place, "s3a://lake", None]) == []
    use_settings({f"spark.hadoop.{key}": text for key, text in KEYS.items()} | {"spark.hadoop.fs.s3a.endpoint": "o:1"})
    assert dict(_settings_here("s3a://lake").variables) == {
        **SENT_KEYS,
        "AWS_ENDPOINT_URL": "https://o:1",
        "AWS_REGION": "us-east-1",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
    }
    [note] = settings_notes([place, place])
    assert note.startswith("s3a://lake: Spark's settings of this store are used, and not AWS_ACCESS_KEY_ID, ")
    assert {"AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_REGION"} <= set(note.replace(",", "").split())


def test_secrets_are_not_printed() -> None:
    assert "SK" not in repr(StoreSettings((("AWS_SECRET_ACCESS_KEY", "SK"),)))
