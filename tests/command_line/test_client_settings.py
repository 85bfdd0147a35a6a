"""Files of client settings (`--command-config`), in the format of Java's properties."""

from __future__ import annotations

from pathlib import Path

import pytest

from gregor.command_line.asking import UsageError, read_client_properties


def test_settings_in_each_form_of_a_properties_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "# settings\nclient.id: a\nrequest.timeout.ms 5000\nretry.backoff.ms=\\\n  7\nbootstrap.servers=h:1\n"
    )
    assert read_client_properties(str(path)) == {
        "client.id": "a",
        "request.timeout.ms": "5000",
        "retry.backoff.ms": "7",
    }


@pytest.mark.parametrize("text", [b"client.id=\\u12", b"client.id=\xff"])
def test_a_malformed_or_missing_properties_file_is_a_usage_error(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(text)
    with pytest.raises(UsageError, match=f"cannot read {path}: "):
        read_client_properties(str(path))
    with pytest.raises(UsageError, match="No such file"):
        read_client_properties(str(tmp_path / "absent"))
