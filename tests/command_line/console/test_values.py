"""Keys and values of any bytes as text; numbers, times and plots."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.command_line.console.avro_schemas import AvroSchemas
from gregor.command_line.console.plots import BINARY, nice_ceiling, plot
from gregor.command_line.console.records import Excerpt
from gregor.command_line.console.units import age_text, byte_text, parse_time_ms, short_count, time_text
from gregor.command_line.console.values import FORMATS, LINE_CHARACTERS, Presentation, Shown, visible

NO_SCHEMAS = AvroSchemas(None)


def show(data: bytes | None, format_name: str = "auto", *, size: int | None = None) -> Shown:
    excerpt = None if data is None else Excerpt(data, len(data) if size is None else size)
    return Presentation(format_name, "t", NO_SCHEMAS, is_key=False).show(excerpt)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (None, "null"),
        (b"", "empty"),
        (b'{"a": 1}', "json"),
        (b" [1, 2]", "json"),
        (b'{"a": ', "text"),
        (b"[" * 100_000, "text"),
        (b"7", "text"),
        ("Zoë 李".encode(), "text"),
        (b"\x00\x01", "hex"),
        (b"\xff\xfe", "hex"),
        (b"tab\tand\nline", "text"),
    ],
)
def test_the_kind_is_guessed(data: bytes | None, kind: str) -> None:
    assert show(data).kind == kind


@given(st.binary(max_size=200), st.sampled_from(FORMATS))
def test_any_bytes_can_be_shown_in_any_format(data: bytes, format_name: str) -> None:
    shown = show(data, format_name)
    assert len(shown.line) <= LINE_CHARACTERS + 1
    assert "\n" not in shown.line


def test_an_excerpt_may_end_within_a_character() -> None:
    shown = show("Zoë".encode()[:3], size=4)
    assert (shown.kind, shown.text) == ("text", "Zo")
    assert "the first 3 of 4 bytes" in shown.note


def test_json_is_shown_as_it_was_written() -> None:
    # Large numbers and repeated keys would change if the line were written from the parsed value.
    data = b'{"n": 1.10, "n": 12345678901234567890123}'
    assert show(data).line == data.decode()


def test_invisible_characters_become_visible() -> None:
    assert visible("a\u202eb\x00c\ufeff") == "a\\u202eb\\u0000c\\ufeff"
    assert visible("line\nand\ttab ë 李 👍") == "line\nand\ttab ë 李 👍"


@pytest.mark.parametrize(("data", "text"), [(b"\xff" * 8, "-1"), (b"\x00\x00\x01\x00", "256"), (b"\x07", "7")])
def test_bytes_are_shown_as_signed_big_endian_numbers(data: bytes, text: str) -> None:
    assert show(data, "number").line == text


# --- Avro

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}
LIST_SCHEMA = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}


def avro(directory: Path, data: bytes, format_name: str = "auto") -> Shown:
    presentation = Presentation(format_name, "orders", AvroSchemas(str(directory)), is_key=False)
    return presentation.show(Excerpt(data, len(data)))


def encoded(value: object) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), value)
    return out.getvalue()


def test_avro_schemas_are_found_by_topic_and_by_schema_id(tmp_path: Path) -> None:
    data = encoded({"id": 7, "note": "hi"})
    (tmp_path / "orders-value.avsc").write_text(json.dumps(SCHEMA))
    by_topic = avro(tmp_path, data)
    assert (by_topic.kind, json.loads(by_topic.text)) == ("avro", {"id": 7, "note": "hi"})
    (tmp_path / "12.avsc").write_text(json.dumps(SCHEMA))
    by_id = avro(tmp_path, b"\0\0\0\0\x0c" + data)
    assert (by_id.kind, by_id.note) == ("avro", "12.avsc")


@pytest.mark.parametrize("data", [b"\xff" * 20, b"\x02", b"", b"\x0e\x00extra"])
def test_other_bytes_are_not_avro(tmp_path: Path, data: bytes) -> None:
    encoded({"id": 1, "note": None})
    (tmp_path / "orders-value.avsc").write_text(json.dumps(SCHEMA))
    assert avro(tmp_path, data, "avro").kind in ("hex", "empty")


def test_a_value_that_nests_without_end_is_refused(tmp_path: Path) -> None:
    encoded({"id": 1, "note": None})
    (tmp_path / "orders-value.avsc").write_text(json.dumps(LIST_SCHEMA))
    assert "RecursionError" in avro(tmp_path, b"\x02" * 10_000, "avro").note


@pytest.mark.parametrize(
    "items", ["null", {"type": "record", "name": "E", "fields": []}, {"type": "fixed", "size": 0, "name": "F"}]
)
def test_arrays_whose_items_have_no_bytes_are_refused(tmp_path: Path, items: object) -> None:
    encoded({"id": 1, "note": None})
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": items}}]}
    (tmp_path / "orders-value.avsc").write_text(json.dumps(schema))
    note = avro(tmp_path, b"\xfe\xff\xff\xff\xff\xff\xff\x7f\x00", "avro").note
    assert "items without bytes" in note or "cannot be used" in note


def test_a_broken_schema_is_named(tmp_path: Path) -> None:
    encoded({"id": 1, "note": None})
    (tmp_path / "orders-value.avsc").write_text("{")
    assert "orders-value.avsc cannot be used" in avro(tmp_path, b"\x02", "avro").note


# --- numbers and plots


def test_sizes_counts_ages_and_times_are_formatted() -> None:
    assert [byte_text(size) for size in (0, 1023, 1536, 5 << 30)] == ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
    assert [short_count(count) for count in (0, 999, 1234, 5_600_000)] == ["0", "999", "1.2k", "5.6M"]
    assert [age_text(age) for age in (-5, 900, 61_000, 90_000_000)] == ["now", "now", "1 min", "1 d"]
    assert time_text(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert [time_text(odd) for odd in (-1, 2**63 - 1)] == ["-", "-"]
    assert parse_time_ms("2023-11-14T22:13:20") == parse_time_ms("1700000000000") == 1_700_000_000_000
    assert parse_time_ms("2023-11-15T00:13:20+02:00") == 1_700_000_000_000


@pytest.mark.parametrize("value", [0, 0.3, 1, 7, 999, 1000, 1001, 123_456_789])
@pytest.mark.parametrize("base", [1000, BINARY])
def test_the_scale_of_a_plot_is_not_far_above_its_largest_value(value: float, base: int) -> None:
    scale = nice_ceiling(value, base)
    assert max(value, 0) <= scale <= max(3 * value, 1)


def test_empty_and_full_plots_are_drawn() -> None:
    assert "no value yet" in plot("Rate", [], short_count)
    assert plot("Rate", [1.0] * 300, short_count).count(",") > 300
    assert "&lt;" in plot("<b>", [1.0], short_count)
