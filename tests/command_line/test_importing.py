"""Modules that are run by their first use, and what an idle broker must not have run."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from gregor.command_line.importing import DEFERRED, DeferredModule, DeferringFinder

RARELY_NEEDED = (
    "_hashlib",
    "_ssl",
    "_bz2",
    "_lzma",
    "concurrent.futures.thread",
    "cramjam",
    "cryptography",
    "email",
    "gregor.broker.authorization.standard_authorizer",
    "encodings.idna",
    "gregor.broker.app.loading",
    "gregor.broker.authentication.listener_guard",
    "gregor.broker.coordinators.groups.coordinator",
    "gregor.broker.http.http_listener",
    "gregor.broker.node.membership",
    "gregor.client",
    "gregor.gateway",
    "gregor.security.jaas",
    "gregor.security.oauthbearer",
    "gregor.security.scram",
    "gregor.zookeeper",
    "h11",
    "http",
    "importlib.metadata",
    "javaproperties",
    "lz4.frame._frame",
    "re2",
    "tarfile",
    "xml",
    "yaml",
    "zstandard.backend_c",
)
"""Modules and packages that a broker needs for certain clients, settings or data only."""

START = """
import atexit, json, sys
from gregor.command_line import main
from gregor.command_line.importing import DeferredModule
atexit.register(lambda: print(json.dumps([n for n, m in sys.modules.items() if not isinstance(m, DeferredModule)])))
sys.exit(main(["serve", "--ephemeral", "--port", "0", "--ready-json", "--stop-at-eof"]))
"""
"""A program that serves until its standard input ends, and then prints the modules that were run."""


def test_an_idle_broker_has_run_no_module_that_few_brokers_need() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as broker:
        assert broker.stdout is not None
        ready = broker.stdout.readline()
        output, log = broker.communicate()
    assert json.loads(ready), log.decode()
    modules = set(json.loads(output.splitlines()[-1]))
    assert "gregor.broker.app.broker" in modules
    assert modules.isdisjoint(RARELY_NEEDED)
    assert modules.isdisjoint(DEFERRED), "these modules were used, or are no longer imported"


@pytest.fixture
def deferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which the module `late_subject` and the package `late_package` are deferred."""
    finder = DeferringFinder(frozenset({"late_subject", "late_package", "_struct"}))
    monkeypatch.syspath_prepend(tmp_path)
    sys.meta_path.insert(0, finder)
    yield tmp_path
    sys.meta_path.remove(finder)
    for name in [name for name in sys.modules if name.startswith("late_")]:
        del sys.modules[name]


def import_late(name: str) -> ModuleType:
    return __import__(name)


def test_a_deferred_module_runs_once_at_its_first_use(deferred: Path) -> None:
    (deferred / "late_subject.py").write_text("runs = [1]\nother = 2\n")
    module = import_late("late_subject")
    assert type(module) is DeferredModule
    assert import_late("late_subject") is module
    assert not hasattr(module, "__path__")
    assert module.__name__ == "late_subject"
    assert type(module) is DeferredModule, "names in double underscores must not run the module"
    module.runs.append(2)
    assert type(module) is ModuleType
    assert (module.other, module.runs) == (2, [1, 2])
    assert not hasattr(module, "missing")
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__


def test_a_deferred_package_finds_its_modules(deferred: Path) -> None:
    (deferred / "late_package").mkdir()
    (deferred / "late_package" / "__init__.py").write_text("from .part import value\n")
    (deferred / "late_package" / "part.py").write_text("value = 7\n")
    assert import_late("late_package").value == 7
    from late_package.part import value  # type: ignore[import-not-found]  # it exists in this test only

    assert value == 7


def test_threads_wait_until_a_deferred_module_is_complete(deferred: Path) -> None:
    (deferred / "late_subject.py").write_text(
        "import late_gate\nfirst = 1\nlate_gate.started.set()\nlate_gate.may_end.wait(60)\nlast = 2\n"
    )
    gate = ModuleType("late_gate")
    started, may_end = threading.Event(), threading.Event()
    vars(gate).update(started=started, may_end=may_end)
    sys.modules["late_gate"] = gate
    module = import_late("late_subject")
    found: list[int] = []
    first = threading.Thread(target=lambda: found.append(module.last))
    first.start()
    assert started.wait(60)
    second = threading.Thread(target=lambda: found.append(module.last))
    second.start()
    may_end.set()
    first.join()
    second.join()
    assert found == [2, 2]


def test_a_module_that_asks_itself_for_a_name_sees_it_missing_while_it_runs(deferred: Path) -> None:
    (deferred / "late_subject.py").write_text(
        "import late_subject\nearly = getattr(late_subject, 'later', 'missing')\nlater = 1\n"
    )
    module = import_late("late_subject")
    assert (module.early, module.later) == ("missing", 1)


def test_modules_in_machine_code_are_not_deferred(deferred: Path) -> None:
    finder = DeferringFinder(frozenset({"_struct", "no_such_module"}))
    spec = finder.find_spec("_struct")
    assert spec is None or not spec.origin.endswith(".py")
    assert finder.find_spec("no_such_module") is None
    assert finder.find_spec("json") is None


def test_an_error_of_a_deferred_module_reaches_its_first_user(deferred: Path) -> None:
    (deferred / "late_subject.py").write_text("raise ImportError('a library is missing')\n")
    module = import_late("late_subject")
    with pytest.raises(ImportError, match="a library is missing"):
        _ = module.anything
