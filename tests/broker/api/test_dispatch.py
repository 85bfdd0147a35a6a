"""Dispatch of frames: unsupported versions, malformed frames, handlers that fail."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from gregor.broker.api.contract import Api
from gregor.broker.api.dispatch import Dispatcher
from gregor.broker.api.table import APIS
from gregor.broker.server.client_connection import UnanswerableError
from gregor.broker.server.outcome import result_of
from gregor.broker.server.request_header_cy import parse_header
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import BrokerError, DecodeError, ErrorCode
from gregor.protocol.messages.api_versions import ApiVersionsRequest
from gregor.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from gregor.protocol.messages.heartbeat import HeartbeatRequest
from gregor.protocol.unsigned_varint import skip_tagged_fields
from tests.asking import Asking
from tests.broker.api.log_requests import answered, frame_of, response_of

SOFTWARE = ApiVersionsRequest(client_software_name="tester", client_software_version="1.0")


@pytest.fixture
def dispatcher(asking: Asking) -> Dispatcher:
    return Dispatcher(asking.broker.services)


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_returns_all_advertised_apis_and_versions(
    asking: Asking, dispatcher: Dispatcher, version: int
) -> None:
    answer = await answered(dispatcher, asking, frame_of(ApiKey.API_VERSIONS, version, SOFTWARE))
    response = response_of(ApiKey.API_VERSIONS, version, answer)
    told = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert told == {api.key: (api.min_version, api.max_version) for api in APIS.values() if api.is_advertised}
    assert told[ApiKey.PRODUCE] == (0, 11)
    assert told[ApiKey.FETCH] == (0, 17)


@pytest.mark.parametrize("version", [5, 99, 32767])
async def test_an_api_versions_version_that_we_lack_is_answered_in_v0(
    asking: Asking, dispatcher: Dispatcher, version: int
) -> None:
    frame = frame_of(ApiKey.API_VERSIONS, 4, SOFTWARE)
    struct.pack_into(">h", frame, 2, version)
    response = response_of(ApiKey.API_VERSIONS, 0, await answered(dispatcher, asking, frame))
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize("name", ["", "a b", "-a", "é"])
async def test_software_names_are_checked(asking: Asking, dispatcher: Dispatcher, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    response = response_of(
        ApiKey.API_VERSIONS, 3, await answered(dispatcher, asking, frame_of(ApiKey.API_VERSIONS, 3, request))
    )
    assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])


async def test_api_versions_stores_the_client_software_name_and_version(asking: Asking, dispatcher: Dispatcher) -> None:
    await answered(dispatcher, asking, frame_of(ApiKey.API_VERSIONS, 3, SOFTWARE))
    assert (asking.client.software_name, asking.client.software_version) == ("tester", "1.0")
    assert asking.client.client_id == "tester"


@pytest.mark.parametrize(("key", "version"), [(-1, 0), (1000, 0), (4, 0), (3, 13), (3, -1), (1, 18)])
async def test_unknown_apis_and_versions_close_the_connection(
    asking: Asking, dispatcher: Dispatcher, key: int, version: int
) -> None:
    frame = memoryview(struct.pack(">hhih", key, version, 1, -1))
    with pytest.raises(UnanswerableError):
        await result_of(dispatcher.answer(frame, asking.client))


@pytest.mark.parametrize("frame", [b"", b"\0\3", struct.pack(">hhih", 3, 1, 1, 500) + b"ab", b"\0\3\0\x09" + bytes(6)])
async def test_malformed_frames_are_decode_errors(asking: Asking, dispatcher: Dispatcher, frame: bytes) -> None:
    with pytest.raises(DecodeError):
        await result_of(dispatcher.answer(memoryview(frame), asking.client))


def failing(error: Exception, *, in_task: bool) -> Any:
    def handle(request: object, context: object) -> object:
        raise error

    async def handle_in_task(request: object, context: object) -> object:
        raise error

    return handle_in_task if in_task else handle


@pytest.mark.parametrize("in_task", [False, True])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BrokerError(ErrorCode.NOT_COORDINATOR), ErrorCode.NOT_COORDINATOR),
        (ValueError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (OSError("a disk"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_an_exception_of_a_handler_becomes_the_error_code_of_the_response(
    asking: Asking, error: Exception, code: ErrorCode, in_task: bool, caplog: pytest.LogCaptureFixture
) -> None:
    handler = failing(error, in_task=in_task)
    dispatcher = Dispatcher(asking.broker.services, {12: Api(ApiKey.HEARTBEAT, 0, 4, handler)})
    answer = await answered(dispatcher, asking, frame_of(ApiKey.HEARTBEAT, 4, HeartbeatRequest()))
    assert response_of(ApiKey.HEARTBEAT, 4, answer).error_code == code
    assert ("Traceback" in caplog.text) == (code is ErrorCode.UNKNOWN_SERVER_ERROR)


@pytest.mark.parametrize("in_task", [False, True])
async def test_an_exception_closes_the_connection_if_the_response_has_no_field_for_an_error(
    asking: Asking, in_task: bool
) -> None:
    row = Api(ApiKey.DELETE_RECORDS, 0, 2, failing(ValueError("unforeseen"), in_task=in_task))
    dispatcher = Dispatcher(asking.broker.services, {row.key: row})
    with pytest.raises(UnanswerableError):
        await result_of(dispatcher.answer(frame_of(ApiKey.DELETE_RECORDS, 1, DeleteRecordsRequest()), asking.client))


@pytest.mark.parametrize("in_task", [False, True])
async def test_an_error_is_set_in_each_entry_if_the_response_has_no_top_level_error_code(
    asking: Asking, in_task: bool
) -> None:
    row = Api(ApiKey.DELETE_RECORDS, 0, 2, failing(BrokerError(ErrorCode.NOT_CONTROLLER), in_task=in_task))
    dispatcher = Dispatcher(asking.broker.services, {row.key: row})
    topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=3)])
    frame = frame_of(ApiKey.DELETE_RECORDS, 1, DeleteRecordsRequest(topics=[topic]))
    answer = await answered(dispatcher, asking, frame)
    (refused,) = response_of(ApiKey.DELETE_RECORDS, 1, answer).topics[0].partitions
    assert (refused.partition_index, refused.error_code) == (3, ErrorCode.NOT_CONTROLLER)


@pytest.mark.parametrize(
    ("client_id", "read"),
    [(b"\0\2ab", "ab"), (b"\xff\xff", None), (b"\xff\xfe", None), (b"\0\0", ""), (b"\0\1\xff", "�")],
)
def test_the_client_id_is_parsed_from_the_request_header(client_id: bytes, read: str | None) -> None:
    frame = memoryview(struct.pack(">hhi", 3, 1, 7) + client_id + b"body")
    header = parse_header(frame)
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (3, 1, 7, read)
    assert bytes(frame[header.end :]) == b"body"


@pytest.mark.parametrize(("tags", "end"), [(b"\0", 1), (b"\1\x63\2ab", 5), (b"\2\1\0\2\1x", 6)])
def test_tagged_fields_are_skipped(tags: bytes, end: int) -> None:
    assert skip_tagged_fields(memoryview(tags + b"rest"), 0) == end


@pytest.mark.parametrize("tags", [b"", b"\xff" * 12, b"\1\x63\x7fab", b"\1"])
def test_truncated_tagged_fields_are_a_decode_error(tags: bytes) -> None:
    with pytest.raises(DecodeError):
        skip_tagged_fields(memoryview(tags), 0)
