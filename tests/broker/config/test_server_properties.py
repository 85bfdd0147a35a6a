"""The sample file: made from the table, and true to it."""

from pathlib import Path

from gregor.broker.config import BrokerConfig
from gregor.broker.config.server_properties import described, server_properties
from gregor.broker.config.table import SUPPORTED_KEYS
from gregor.storage.disk.properties import parse_properties

SAMPLE = Path(__file__).resolve().parents[3] / "config" / "server.properties"


def test_the_committed_sample_file_is_generated_from_the_key_table() -> None:
    assert SAMPLE.read_text() == server_properties(), "run `gregor config --write > config/server.properties`"


def test_the_sample_file_sets_no_key() -> None:
    assert parse_properties(server_properties()) == {}


def test_the_uncommented_sample_file_gives_the_defaults() -> None:
    lines = [line.removeprefix("#") for line in server_properties().splitlines() if not line.startswith("# ")]
    given = parse_properties("\n".join(lines))
    assert set(given) == {name for name, key in SUPPORTED_KEYS.items() if not key.internal}
    # Of two names of one key, an old and a new one, only one may be set.
    for older in ("broker.id",):
        del given[older]
    config = BrokerConfig(given)
    for name in given:
        key = SUPPORTED_KEYS[name]
        if name != "log.dirs":
            assert getattr(config, key.attribute) == key.default, name


def test_help_can_be_narrowed_to_a_word() -> None:
    lines = list(described(["downconversion"]))
    assert [line.partition("=")[0] for line in lines] == [
        "log.message.downconversion.enable",
        "gregor.message.downconversion.chunk.bytes",
        "gregor.message.downconversion.zstd.codec",
    ]
