"""What the bridge's parts hand to one another: results that are decoded when asked for, and snapshots."""

import dataclasses

import msgspec
import pytest

from quarterdeck_protocol.contract import EndpointStatus, RemoteCallResult, RemoteTool
from quarterdeck_protocol.names import RemoteToolRef
from quarterdeck_protocol.phases import EndpointPhase
from quarterdeck_protocol.tools import ToolDescriptor, WireResult

ERA = "2025-11-25"


def _result(body: bytes, *, is_error: bool = False) -> RemoteCallResult:
    return RemoteCallResult(WireResult(body, ERA, is_error))


def test_a_result_gives_its_parts_as_json_values() -> None:
    """Users see dicts and lists, never an SDK's objects."""
    body = b'{"content":[{"type":"text","text":"hi"},{"type":"image","data":"eA==","x":null}],'
    body += b'"structuredContent":{"n":1},"_meta":{"k":"v"},"extra":true}'
    result = _result(body)
    assert result.content == ({"type": "text", "text": "hi"}, {"type": "image", "data": "eA==", "x": None})
    assert result.structured_content == {"n": 1}
    assert result.meta == {"k": "v"}
    assert result.value["extra"] is True
    assert result.body is result.wire.body is body


def test_a_result_without_parts_has_empty_ones() -> None:
    """Optional members are optional."""
    result = _result(b"{}")
    assert result.content == ()
    assert result.structured_content is None
    assert result.meta is None
    assert not result.is_error


@pytest.mark.parametrize("body", [b'{"content":null}', b'{"content":"x"}', b'{"content":{}}'])
def test_content_that_is_no_list_counts_as_none(body: bytes) -> None:
    """The seeds say so: a non-array result defaults to nothing."""
    assert _result(body).content == ()


def test_a_body_is_decoded_once_and_only_when_asked() -> None:
    """Passing a result on must not cost its decoding, reading it twice not two."""
    result = _result(b"not json")
    assert result.body == b"not json"
    with pytest.raises(msgspec.DecodeError):
        _ = result.content
    result = _result(b'{"content":[]}')
    assert result.value is result.value


def test_results_compare_by_what_the_server_said() -> None:
    """Whether somebody has looked into it makes no difference."""
    looked, fresh = _result(b'{"content":[]}'), _result(b'{"content":[]}')
    assert looked.content == ()
    assert looked == fresh
    assert looked != _result(b'{"content":[]}', is_error=True)


def test_results_and_tools_are_frozen() -> None:
    """They are shared by everyone who asked."""
    tool = RemoteTool(RemoteToolRef("fs", "read"), ToolDescriptor("fs__read", "", {}))
    for value, field in ((tool, "ref"), (_result(b"{}"), "is_error")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field, None)


def test_a_status_needs_only_the_seeds_fields() -> None:
    """Embedders and tests make them by hand."""
    status = EndpointStatus("fs", EndpointPhase.READY, 3)
    assert (status.fault, status.pid, status.restarts, status.isolated) == (None, None, 0, True)
