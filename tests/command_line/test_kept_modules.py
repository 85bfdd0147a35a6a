"""Bytecode of modules of packages that is kept in one file from one start to the next."""

from __future__ import annotations

import importlib
import inspect
import marshal
import os
import py_compile
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import pytest

from gregor.command_line import kept_files
from gregor.command_line.kept_modules import INDEX_SIZE_BYTES, kept_modules

SUBJECT = "subject_of_kept_modules"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with a module, a package with a module in it, and a module that may be compiled later."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(kept_files, "path_of", lambda imports: str(tmp_path / imports))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    folder = tmp_path / SUBJECT
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("from . import inner, number, quick_cy\n")
    (folder / "number.py").write_text("value = 1\n\ndef read() -> int:\n    return value\n")
    (folder / "inner" / "__init__.py").write_text("from .part import value\n")
    (folder / "inner" / "part.py").write_text("value = 7\n")
    (folder / "quick_cy.py").write_text("value = 'interpreted'\n")
    yield folder
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == SUBJECT]:
        del sys.modules[name]


def import_anew(name: str = SUBJECT) -> ModuleType:
    """Import the package as a new process would, with kept modules."""
    forget()
    importlib.invalidate_caches()
    with kept_modules("subject"):
        return importlib.import_module(name)


@pytest.fixture
def read_by_python(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of modules, in the subject, whose bytecode Python's own loader was asked for."""
    names: list[str] = []
    get_code = SourceFileLoader.get_code

    def note(loader: SourceFileLoader, name: str) -> CodeType | None:
        names.append(name.removeprefix(f"{SUBJECT}."))
        return get_code(loader, name)

    monkeypatch.setattr(SourceFileLoader, "get_code", note)
    return names


def test_a_second_import_reads_one_file(package: Path, read_by_python: list[str]) -> None:
    import_anew()
    assert set(read_by_python) == {SUBJECT, "inner", "inner.part", "number", "quick_cy"}
    read_by_python.clear()
    subject = import_anew()
    # The package itself is found by sys.path, and the module that may be compiled by its folder.
    assert read_by_python == [SUBJECT, "quick_cy"]
    assert (subject.number.value, subject.inner.value, subject.quick_cy.value) == (1, 7, "interpreted")


def test_a_module_of_kept_bytecode_says_of_itself_what_others_say(package: Path) -> None:
    places = [
        (module.__file__, module.__cached__, module.__package__, getattr(module, "__path__", None))
        for subject in (import_anew(), import_anew())
        for module in (subject.number, subject.inner, subject.inner.part)
    ]
    assert places[:3] == places[3:]
    number = import_anew().number
    assert "return value" in inspect.getsource(number.read)
    assert number.__loader__.get_code(number.__name__) == number.__loader__.get_code(number.__name__) is not None


@pytest.mark.parametrize("source", ["value = 2\n\ndef read() -> int:\n    return value\n", "value = 2\n"])
def test_a_changed_source_is_read_again(package: Path, read_by_python: list[str], source: str) -> None:
    import_anew()
    written = (package / "number.py").stat()
    (package / "number.py").write_text(source)
    os.utime(package / "number.py", ns=(written.st_atime_ns, written.st_mtime_ns + 2_000_000_000))
    assert import_anew().number.value == 2
    read_by_python.clear()
    assert import_anew().number.value == 2
    assert "number" not in read_by_python


def test_a_module_that_becomes_a_package_is_found(package: Path) -> None:
    import_anew()
    (package / "number.py").unlink()
    (package / "number").mkdir()
    (package / "number" / "__init__.py").write_text("value = 3\n")
    assert import_anew().number.value == 3
    assert import_anew().number.__path__ == [str(package / "number")]


def test_a_package_in_another_folder_has_modules_of_its_own(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_anew()
    other = package.parent / "other" / SUBJECT
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("from . import number\n")
    (other / "number.py").write_text("value = 4\n")
    monkeypatch.syspath_prepend(other.parent)
    assert import_anew().number.value == 4


def test_a_missing_module_is_missing(package: Path) -> None:
    import_anew()
    (package / "number.py").unlink()
    with pytest.raises(ImportError, match="number"):
        import_anew()


def test_a_module_without_source_is_left_to_python(package: Path) -> None:
    py_compile.compile(str(package / "number.py"), cfile=str(package / "number.pyc"), doraise=True)
    (package / "number.py").unlink()
    for _ in range(2):
        assert import_anew().number.value == 1


@pytest.mark.parametrize("cut", [0, 3, INDEX_SIZE_BYTES, INDEX_SIZE_BYTES + 5, -1, -40])
def test_a_damaged_file_is_replaced(package: Path, read_by_python: list[str], cut: int) -> None:
    import_anew()
    file = package.parent / "subject-modules"
    file.write_bytes(file.read_bytes()[:cut])
    assert import_anew().inner.value == 7
    read_by_python.clear()
    import_anew()
    assert read_by_python == [SUBJECT, "quick_cy"]


def test_bytecode_of_zeros_is_replaced(package: Path, read_by_python: list[str]) -> None:
    import_anew()
    file = package.parent / "subject-modules"
    content = file.read_bytes()
    index_end = INDEX_SIZE_BYTES + int.from_bytes(content[:INDEX_SIZE_BYTES], "big")
    file.write_bytes(content[:index_end].ljust(len(content), b"\0"))
    assert import_anew().inner.value == 7
    read_by_python.clear()
    import_anew()
    assert read_by_python == [SUBJECT, "quick_cy"]


@pytest.mark.parametrize("index", [marshal.dumps(3), marshal.dumps([1]), marshal.dumps([("a", "b")]), b"\xff"])
def test_a_file_of_another_form_is_replaced(package: Path, index: bytes) -> None:
    (package.parent / "subject-modules").write_bytes(len(index).to_bytes(INDEX_SIZE_BYTES, "big") + index)
    assert import_anew().number.value == 1


def test_an_error_in_a_source_reaches_the_importer_and_nothing_is_kept(package: Path) -> None:
    (package / "number.py").write_text("value = \n")
    with pytest.raises(SyntaxError):
        import_anew()
    assert not [finder for finder in sys.meta_path if type(finder).__name__ == "KeptModules"]
    assert not (package.parent / "subject-modules").exists()


def test_imports_work_where_no_file_can_be_written(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_files, "path_of", lambda imports: str(package / "missing" / imports))
    assert import_anew().number.value == 1
    monkeypatch.setattr(kept_files, "path_of", lambda imports: None)
    assert import_anew().number.value == 1
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(kept_files, "path_of", lambda imports: str(package.parent / imports))
    assert import_anew().number.value == 1
    assert list(package.parent.iterdir()) == [package]
