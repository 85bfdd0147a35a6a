"""The syntax of properties files, case by case as `java.util.Properties.load` describes it."""

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.storage.disk.properties import parse_numbered_properties, parse_properties

CASES = [
    ("key=value", {"key": "value"}),
    ("key = value ", {"key": "value "}),
    ("key:value", {"key": "value"}),
    ("key value", {"key": "value"}),
    ("key\t=\tvalue", {"key": "value"}),
    ("key", {"key": ""}),
    ("key=", {"key": ""}),
    ("  key=value", {"key": "value"}),
    ("# comment\n! another\nkey=value", {"key": "value"}),
    ("key=value # not a comment", {"key": "value # not a comment"}),
    ("fruits=apple, \\\n    banana", {"fruits": "apple, banana"}),
    ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
    ("a=1\\\n# no comment", {"a": "1# no comment"}),
    ("a\\ b=c", {"a b": "c"}),
    ("a\\=b=c", {"a=b": "c"}),
    ("a=b=c", {"a": "b=c"}),
    ("url=PLAINTEXT://localhost:9092", {"url": "PLAINTEXT://localhost:9092"}),
    ("umlaut=\\u00e4", {"umlaut": "ä"}),
    ("tab=a\\tb", {"tab": "a\tb"}),
    ("unknown=\\q", {"unknown": "q"}),
    ("twice=1\ntwice=2", {"twice": "2"}),
    ("crlf=1\r\nnext=2\rlast=3", {"crlf": "1", "next": "2", "last": "3"}),
    ("a=1\\", {"a": "1"}),
    ("", {}),
    ("=value", {"": "value"}),
    ("\\\n#key=value", {"#key": "value"}),
    ("client.id: a", {"client.id": "a"}),
    ("smile=\\ud83d\\ude00", {"smile": "\U0001f600"}),
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[repr(text) for text, _ in CASES])
def test_each_syntax_case_is_parsed_as_by_java(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_lines_are_numbered_by_the_beginnings_of_their_keys() -> None:
    found = parse_numbered_properties("# one\r\n\na=1\\\n  2\rb 3\n\n c: 4")
    assert found == {"a": ("12", 3), "b": ("3", 5), "c": ("4", 7)}
    with pytest.raises(ValueError, match="line 2: Malformed"):
        parse_numbered_properties("a=1\nb=\\u12")


def test_a_broken_unicode_escape_is_an_error() -> None:
    with pytest.raises(ValueError, match="Malformed"):
        parse_properties("a=\\u12")


@given(st.lists(st.text(st.sampled_from("ab1.-_=:#! \t\f\v\n\r\\/u\x85ä"), max_size=8)).map("\n".join))
def test_plain_files_read_as_the_library_reads_them(text: str) -> None:
    try:
        expected = javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError:
        return
    assert parse_properties(text) == expected


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parsed = parse_properties(text)
    except ValueError:
        return
    assert all(isinstance(value, str) for value in parsed.values())
