"""The console's pages as a broker process serves them: contents, forms, refused requests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape

import pytest
import trio

from gregor.client import Producer
from gregor.client.admin import Admin, NewTopic
from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.broker_process import BrokerProcess, running_broker
from tests.command_line.console.visitor import CONSOLE, Visitor, visitor_of
from tests.wire import Wire

RECORD_COUNT = 230
HOSTILE = "<script>alert(1)</script>\u202etxt.exe"
ROW = re.compile(r'records/(\d+)/(\d+)[?"]')


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Provide a broker with the topics `orders`, with records of three partitions, and `crowded`, without records."""
    directory = tmp_path_factory.mktemp("console")
    faults = "gregor.fault.injection.enable=true"
    with running_broker(directory, CONSOLE, faults, "offsets.topic.num.partitions=1") as running:
        trio.run(fill, running.bootstrap)
        yield running


@pytest.fixture
def visitor(broker: BrokerProcess) -> Visitor:
    return visitor_of(broker)


async def fill(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin, Producer(bootstrap, compression_type="gzip") as producer:
        await admin.create_topics([NewTopic("orders", 3, 1), NewTopic("crowded", 60, 1), NewTopic("odd", 1, 1)])
        for number in range(RECORD_COUNT):
            value = json.dumps({"order": number, "customer": "Zoë"}, ensure_ascii=False).encode()
            await producer.send("orders", value, key=b"c%d" % (number % 9), headers=[("trace", b"t%d" % number)])
        await producer.send("odd", HOSTILE.encode(), key=b"<b>", headers=[(HOSTILE, HOSTILE.encode())])
        await producer.send("odd", bytes(range(256)), key=(77).to_bytes(8, "big"))
        await producer.send("odd", None, key=b"")
        await producer.send("odd", b"L" * 900_000 + b"needle", key=b"large")
        await producer.flush()
        await admin.alter_group_offsets("readers", {("orders", 0): 5, ("orders", 1): 0})


def rows(page: str) -> list[tuple[int, int]]:
    """Return the partition and offset of each row."""
    return [(int(partition), int(offset)) for partition, offset in ROW.findall(page)]


def next_page(page: str) -> str | None:
    found = re.search(r'href="([^"]+)" rel="next"', page)
    return found and unescape(found[1])


# --- pages


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/", ["Resident memory", "Messages in per second", "controller", "<svg"]),
        ("/topics", ["orders", "crowded", "in sync"]),
        ("/topics?filter=ORD", ["orders"]),
        ("/topics?internal=1", ["__consumer_offsets"]),
        ("/topics/orders", ["Zoë", "c0"]),
        ("/topics/orders/partitions", ["End offset", "Topic id"]),
        ("/topics/orders/configs", ["retention.ms", "Whether", "default"]),
        ("/topics/orders/produce", ["Compression", "tombstone"]),
        ("/groups", ["readers", "Empty"]),
        ("/groups/readers", ["Committed", "orders"]),
        ("/clients", ["Kafka 4"]),
        ("/faults", ["No rule is in force", "NOT_LEADER_OR_FOLLOWER"]),
        ("/assets/console.css", ["prefers-color-scheme"]),
        ("/assets/console.js", ["refresh"]),
    ],
)
def test_each_page_shows_its_contents(visitor: Visitor, path: str, words: list[str]) -> None:
    page = visitor.page(path)
    for word in words:
        assert word in page


def test_pages_load_no_resources_of_other_hosts(visitor: Visitor) -> None:
    for path in ("/", "/topics/orders", "/faults", "/assets/console.css"):
        page = visitor.page(path)
        assert not re.findall(r"""(?:src|href|url\()\s*=?\s*["']?(?:https?:)?//""", page)
    assert "default-src 'none'" in visitor.get("/").headers["content-security-policy"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        ("/topics/unknown", 404),
        ("/topics/orders/records/0/999999", 404),
        ("/topics/orders/records/0/x", 404),
        ("/topics/orders/records/0/1/secret", 404),
        ("/topics/orders?partition=3", 400),
        ("/topics/orders?partition=x", 400),
        ("/topics/orders?start=offset&at=first", 400),
        ("/topics/orders?start=time&at=yesterday", 400),
        ("/topics/orders?start=time&at=999999999999999999999", 400),
        ("/topics/orders?start=middle", 400),
        ("/topics/orders?cursor=0:-1", 400),
        ("/topics/orders?text=0xzz", 400),
        ("/topics?page=0", 400),
        ("/assets/../site.py", 404),
        ("/assets/%2e%2e%2fsite.py", 404),
        ("/assets/site.py", 404),
    ],
)
def test_unknown_pages_and_invalid_parameters_are_answered_with_an_error_page(
    visitor: Visitor, path: str, status: int
) -> None:
    answer = visitor.get(path)
    assert answer.status == status
    assert "<h1>" in answer.text, "an error is a page, too"


def test_long_lists_have_pages(visitor: Visitor) -> None:
    first = visitor.page("/topics/crowded/partitions")
    assert "Page 1 of 2 (60 in all)" in first
    assert first.count("?partition=") == 50
    assert visitor.page("/topics/crowded/partitions?page=2").count("?partition=") == 10
    assert visitor.page("/topics/crowded/partitions?page=99").count("?partition=") == 10


# --- records


@pytest.mark.parametrize("start", ["newest", "oldest"])
@pytest.mark.parametrize("partition", ["", "1"])
def test_pages_of_records_hold_each_record_once(visitor: Visitor, start: str, partition: str) -> None:
    path: str | None = f"/topics/orders?start={start}&limit=25&partition={partition}"
    seen: list[tuple[int, int]] = []
    while path is not None:
        page = visitor.page(path)
        seen += rows(page)
        path = next_page(page)
    assert len(seen) == len(set(seen))
    if not partition:
        assert len(seen) == RECORD_COUNT
    for index in {place[0] for place in seen}:
        offsets = [offset for place, offset in seen if place == index]
        assert offsets == sorted(offsets, reverse=start == "newest")


def test_records_are_listed_from_an_offset_or_a_time(visitor: Visitor) -> None:
    assert rows(visitor.page("/topics/orders?partition=0&start=offset&at=7"))[0] == (0, 7)
    assert not rows(visitor.page("/topics/orders?start=time&at=2999-01-01T00:00"))
    assert len(rows(visitor.page("/topics/orders?start=time&at=2001-01-01T00:00&limit=25"))) == 25
    assert len(rows(visitor.page("/topics/orders?start=time&at=0&limit=25"))) == 25


@pytest.mark.parametrize("start", ["newest", "oldest"])
@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("text=%22order%22%3A+117%2C", 1),
        ("text=ZO%C3%AB", 50),
        ("text=zo%C3%AB&limit=200", 200),
        ("text=t42", 1),
        ("text=T42", 1),
        ("text=0x743432", 1),
        ("key=c0&limit=100", 26),
        ("key=c", 0),
        ("key=c0&text=order%22%3A+9%2C", 1),
    ],
)
def test_search_finds_records_by_text_key_and_bytes(visitor: Visitor, start: str, search: str, expected: int) -> None:
    assert len(rows(visitor.page(f"/topics/orders?start={start}&{search}"))) == expected


def test_hostile_records_stay_text(visitor: Visitor) -> None:
    for path in ("/topics/odd", "/topics/odd/records/0/0", "/topics/odd?text=%3Cscript%3E"):
        page = visitor.page(path)
        assert "<script>alert" not in page
        assert "\u202e" not in page
        assert "&lt;script&gt;" in page
    assert "<b>" not in visitor.page("/topics/odd/records/0/0")


def test_the_page_of_a_record_shows_its_bytes_and_has_downloads(visitor: Visitor) -> None:
    page = visitor.page("/topics/odd/records/0/1")
    assert "000010  10 11 12" in page
    assert "as a number 77" in page
    assert visitor.get("/topics/odd/records/0/1/value").body == bytes(range(256))
    download = visitor.get("/topics/odd/records/0/1/key")
    assert download.body == (77).to_bytes(8, "big")
    assert "attachment" in download.headers["content-disposition"]


def test_a_record_is_shown_in_the_chosen_format(visitor: Visitor) -> None:
    assert "int64" in visitor.page("/topics/odd/records/0/1?key_format=number")
    assert "not json" in visitor.page("/topics/odd/records/0/1?value_format=json")
    assert "set gregor.console.schema.dir" in visitor.page("/topics/odd/records/0/1?value_format=avro")
    assert "&#34;order&#34;" in visitor.page("/topics/orders/records/0/0")


def test_nulls_and_empty_keys_differ(visitor: Visitor) -> None:
    page = visitor.page("/topics/odd/records/0/2")
    assert "(empty)" in page
    assert ">null<" in page


def test_a_large_record_is_cut_and_can_be_downloaded_and_found(visitor: Visitor) -> None:
    page = visitor.page("/topics/odd?limit=25")
    assert len(page) < 200_000
    assert "the first 16,384 of 900,006 bytes" in page
    assert len(visitor.page("/topics/odd/records/0/3")) < 300_000
    assert visitor.get("/topics/odd/records/0/3/value").body.endswith(b"needle")
    assert rows(visitor.page("/topics/odd?text=needle")) == [(0, 3)]


# --- forms


def test_a_produced_record_is_there(visitor: Visitor) -> None:
    assert "was created" in visitor.send("/topics", name="made", partitions="2", configs="retention.ms=-1\n").text
    page = visitor.send(
        "/topics/made/produce",
        key="k",
        key_kind="text",
        value='{"a": "1\r\n2"}'.replace("\r\n", " "),
        value_kind="json",
        headers="trace: 7\r\nempty:",
        codec="zstd",
    )
    assert page.status == 200, page.text
    ((partition, offset),) = rows(page.text)
    record = visitor.page(f"/topics/made/records/{partition}/{offset}")
    for word in ("compression zstd", "trace", "&#34;a&#34;"):
        assert word in record
    copied = visitor.page(f"/topics/made/produce?copy={partition}:{offset}")
    assert "trace: 7" in copied
    again = visitor.send(
        "/topics/made/produce", value="ff 00", value_kind="hex", key_kind="null", codec="none", partition="1"
    )
    assert (
        visitor.get(f"/topics/made/records/1/{max(o for p, o in rows(again.text) if p == 1)}/value").body == b"\xff\x00"
    )


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"value": "{", "value_kind": "json"}, "not JSON"),
        ({"value": "0", "value_kind": "hex"}, "hexadecimal"),
        ({"partition": "3"}, "partitions 0 to 2"),
        ({"codec": "rar"}, "no codec"),
        ({"headers": "no colon"}, "NAME: VALUE"),
    ],
)
def test_an_invalid_form_is_shown_again_with_its_content(
    visitor: Visitor, fields: dict[str, str], complaint: str
) -> None:
    whole = {"key": "keep me", "key_kind": "text", "value": "v", "value_kind": "text", "codec": "none", **fields}
    answer = visitor.send("/topics/orders/produce", **whole)
    assert answer.status == 400
    assert complaint in unescape(answer.text)
    assert "keep me" in answer.text


def test_a_topic_gets_new_configs_and_partitions_and_is_deleted(visitor: Visitor) -> None:
    visitor.send("/topics", name="brief")
    page = visitor.send("/topics/brief/configs", key="retention.ms", value="1234").text
    assert 'value="1234"' in page
    assert "1234" not in visitor.send("/topics/brief/configs", key="retention.ms", value="1234", reset="1").text
    assert visitor.send("/topics/brief/configs", key="retention.ms", value="soon").status == 400
    assert "3 partitions" in visitor.send("/topics/brief/partitions", count="3").text
    assert visitor.send("/topics/brief/delete", confirmation="other").status == 400
    assert "was deleted" in visitor.send("/topics/brief/delete", confirmation="brief").text
    assert visitor.get("/topics/brief").status == 404


def test_a_reset_is_shown_before_it_is_made(visitor: Visitor) -> None:
    preview = visitor.page("/groups/readers?target=shift&at=2&topic=")
    assert "Set these offsets" in preview
    assert 'at=5"' in visitor.page("/groups/readers").replace("&amp;", "&"), "a preview changes nothing"
    done = visitor.send("/groups/readers/offsets", target="shift", at="2", topic="")
    assert 'at=7"' in done.text.replace("&amp;", "&")
    assert 'at=0"' in visitor.send("/groups/readers/offsets", target="earliest", at="", topic="orders").text.replace(
        "&amp;", "&"
    )
    assert visitor.send("/groups/readers/offsets", target="sideways", at="", topic="").status == 400


def test_a_group_is_deleted_by_its_name(visitor: Visitor, broker: BrokerProcess) -> None:
    async def commit() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.alter_group_offsets("short/lived group", {("orders", 0): 1})

    trio.run(commit)
    path = "/groups/short%2Flived%20group"
    assert "short/lived group" in visitor.page(path)
    assert visitor.send(f"{path}/delete", confirmation="").status == 400
    assert "was deleted" in visitor.send(f"{path}/delete", confirmation="short/lived group").text


def test_a_client_that_kafka_4_refuses_is_listed_with_its_conversion_cost(
    visitor: Visitor, broker: BrokerProcess
) -> None:
    with Wire(broker.address, client_id="shipper<2015>") as wire:
        place = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        wire.ask(ApiKey.FETCH, 2, FetchRequest(topics=[FetchTopic(topic="orders", partitions=[place])]))
    page = visitor.page("/clients?refused=1")
    for word in (
        "shipper&lt;2015&gt;",
        "refused",
        "Kafka 4 refuses Fetch v2",
        "too old",
        "down: ",
        "Down-conversion by topic",
    ):
        assert word in page
    assert "Clients that Kafka 4 would refuse" in visitor.page("/")
    assert "No client fits" in visitor.page("/clients?refused=1&filter=nobody")


def test_faults_are_switched_on_and_off(visitor: Visitor, broker: BrokerProcess) -> None:
    page = visitor.send("/faults", name="moved", rule="api=Produce error=NOT_LEADER_OR_FOLLOWER", broker="").text
    assert "Switch moved off" in page
    refused = visitor.send("/topics/odd/produce", value="v", value_kind="text", key_kind="null", codec="none")
    assert refused.status == 200, "the console is exempt from its own faults"
    off = visitor.send("/faults/moved/off", broker="1", source="all brokers", rule="api=Produce delay=1ms").text
    assert "Switch moved on" in off
    assert "No rule is in force" in off
    assert visitor.send("/faults", name="x", rule="api=Nothing", broker="").status == 400
    assert "fault rule moved has ended" in broker.output()


# --- what is refused


def test_forms_of_other_pages_are_refused(visitor: Visitor) -> None:
    visitor.page("/topics")
    own = {"Origin": f"http://127.0.0.1:{visitor.port}"}
    assert visitor.post("/topics", {"name": "forged"}, own).status == 403
    assert visitor.post("/topics", {"name": "forged", "token": "guessed"}, own).status == 403
    visitor.send("/topics", name="known")
    fields = {"name": "forged", "token": visitor.token}
    assert visitor.post("/topics", fields, {"Origin": "http://evil.example"}).status == 403
    assert visitor.post("/topics", fields, {"Sec-Fetch-Site": "cross-site"}).status == 403
    assert visitor.post("/topics", fields, {"Host": "evil.example", "Origin": "http://evil.example"}).status == 421
    assert visitor.get("/topics", Host="evil.example").status == 421
    assert "forged" not in visitor.page("/topics")


def test_a_read_only_console_changes_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("read-only")
    with running_broker(directory, CONSOLE, "gregor.console.read.only=true") as running:
        visitor = visitor_of(running)
        assert "Create a topic" not in visitor.page("/topics")
        visitor.token = "any"
        assert visitor.send("/topics", name="t").status == 403
        assert "Fault injection is off" in visitor.page("/faults")
