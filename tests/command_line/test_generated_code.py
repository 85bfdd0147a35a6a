"""Bytecode of generated methods that is kept from one start to the next."""

from __future__ import annotations

import collections
import dataclasses
import importlib
import marshal
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gregor.command_line import generated_code, kept_files
from gregor.command_line.generated_code import kept_bytecode

SUBJECT = """
from dataclasses import dataclass, field
from typing import NamedTuple
import attrs

@dataclass(frozen=True, slots=True, order=True)
class Frozen:
    number: int
    names: list[str] = field(default_factory=list, compare=False)

@dataclass
class Open:
    number: "int" = 3

class Place(NamedTuple):
    topic: "str"
    partition: "int" = 0

@attrs.define
class Defined:
    number: int = 5
"""


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The source of a module `generated_subject`; kept bytecode is in the same folder."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(kept_files, "path_of", lambda imports: str(tmp_path / imports))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    source = tmp_path / "generated_subject.py"
    source.write_text(SUBJECT)
    yield source
    sys.modules.pop("generated_subject", None)


def import_subject() -> ModuleType:
    """Import the module once more, with kept bytecode."""
    sys.modules.pop("generated_subject", None)
    importlib.invalidate_caches()
    with kept_bytecode("subject"):
        return importlib.import_module("generated_subject")


def refuse_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test fail if a text is compiled that was to be kept."""

    def refuse(source: str, *_: object, **__: object) -> Any:
        raise AssertionError(source)

    monkeypatch.setattr(generated_code, "compile", refuse, raising=False)


def check_behaviour(module: ModuleType) -> None:
    """Check what the generated methods do, and what they say of themselves."""
    frozen = module.Frozen(1, ["a"])
    assert (repr(frozen), frozen, hash(frozen)) == ("Frozen(number=1, names=['a'])", module.Frozen(1), hash((1,)))
    assert frozen < module.Frozen(2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        frozen.number = 2
    assert module.Frozen.__init__.__annotations__ == {"number": int, "names": list[str], "return": None}
    assert (module.Open(), dataclasses.replace(module.Open(), number=4).number) == (module.Open(3), 4)
    assert module.Place("t") == ("t", 0)
    assert typing.get_type_hints(module.Place) == {"topic": str, "partition": int}
    assert (module.Defined(), repr(module.Defined(6))) == (module.Defined(5), "Defined(number=6)")


def test_a_second_import_compiles_no_text(subject: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_behaviour(import_subject())
    refuse_texts(monkeypatch)
    check_behaviour(import_subject())


def test_a_changed_class_has_its_new_methods(subject: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_subject()
    subject.write_text(SUBJECT.replace('number: "int" = 3', 'number: "int" = 7\n    name: str = "n"'))
    assert repr(import_subject().Open()) == "Open(number=7, name='n')"
    refuse_texts(monkeypatch)
    assert import_subject().Open(1).name == "n"


@pytest.mark.parametrize("damage", [b"", b"\xff\x00", marshal.dumps([1]), marshal.dumps({("a", "b", "exec"): 1})[:-1]])
def test_a_damaged_file_is_replaced(subject: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes) -> None:
    (subject.parent / "subject").write_bytes(damage)
    check_behaviour(import_subject())
    refuse_texts(monkeypatch)
    check_behaviour(import_subject())


def test_imports_work_where_no_file_can_be_written(subject: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_files, "path_of", lambda imports: str(subject.parent / "missing" / imports))
    check_behaviour(import_subject())
    monkeypatch.setattr(kept_files, "path_of", lambda imports: None)
    check_behaviour(import_subject())


def test_nothing_is_written_if_python_writes_no_bytecode(subject: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    check_behaviour(import_subject())
    assert list(subject.parent.iterdir()) == [subject]


def test_python_s_own_functions_are_back_after_a_failed_import(subject: Path) -> None:
    subject.write_text("from dataclasses import dataclass\n@dataclass\nclass Wrong:\n    a: int = 1\n    b: int\n")
    with pytest.raises(TypeError, match="non-default argument"):
        import_subject()
    for module in (collections, dataclasses, typing, sys.modules["attr._make"]):
        assert vars(module).keys().isdisjoint({"compile", "exec", "eval"})
    assert not (subject.parent / "subject").exists()


def test_attrs_is_offered_kept_bytecode_before_it_runs(tmp_path: Path) -> None:
    program = (
        "from gregor.command_line import generated_code\n"
        f"generated_code.kept_files.path_of = lambda imports: {str(tmp_path / 'attrs')!r}\n"
        "with generated_code.kept_bytecode('attrs'): import attr\n"
        "import inspect; assert 'def _compile_and_eval' in inspect.getsource(attr._make)\n"
        "assert 'compile' not in vars(attr._make)\n"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONDONTWRITEBYTECODE": ""})
    kept = marshal.loads((tmp_path / "attrs").read_bytes())
    assert any(filename.startswith("<attrs generated") for _, filename, _ in kept)


HASHED = """
import attrs

@attrs.frozen
class First:
    number: int

@attrs.frozen
class Second:
    number: int
"""


def test_classes_of_attrs_are_kept_although_each_process_hashes_their_names_anew(tmp_path: Path) -> None:
    (tmp_path / "hashed_subject.py").write_text(HASHED)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from gregor.command_line import generated_code\n"
        f"generated_code.kept_files.path_of = lambda imports: {str(tmp_path / 'attrs')!r}\n"
        "def write(*_):\n    print('written')\n    write_file(*_)\n"
        "kept_files = generated_code.kept_files\n"
        "write_file, kept_files.write = kept_files.write, write\n"
        "with generated_code.kept_bytecode('attrs'): from hashed_subject import First, Second\n"
        "assert hash(First(1)) == hash(First(1)) != hash(First(2))\n"
        "assert hash(First(1)) != hash(Second(1)) and First(1) != Second(1)\n"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            env={"PYTHONDONTWRITEBYTECODE": "", "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs == [b"written\n", b""]
