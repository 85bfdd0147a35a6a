"""What a job says at a terminal about a mistake: one line."""

from __future__ import annotations

import pytest

from gregor.command_line import main

pytest.importorskip("pyspark", reason="the pipeline needs gregor[spark]")


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("stats --log-dir s3a://bucket/logs", "argument --log-dir: s3a://bucket/logs: s3a is not supported"),
        ("archive --archive lake", "the following arguments are required: --bootstrap-server"),
        (
            "replay --archive a --bootstrap-server b --since soon",
            "argument --since: invalid milliseconds value: 'soon'",
        ),
    ],
)
def test_a_mistake_is_one_line(command: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", *command.split()])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(f"Error: {complaint}")
    assert told.count("\n") == 1
