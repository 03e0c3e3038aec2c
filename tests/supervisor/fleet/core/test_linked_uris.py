"""What results link to is known for a while, whatever a server writes beside it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.fleet.core.linked_uris import MAX_URI_CHARS, MAX_URIS, LinkedUris


def result(*uris: str) -> bytes:
    links = [{"type": "resource_link", "uri": uri, "name": "n"} for uri in uris]
    return msgspec.json.encode({"content": [{"type": "text", "text": "see"}, *links]})


def test_a_resource_that_a_result_linked_to_is_known() -> None:
    linked = LinkedUris()
    linked.note(result("x:1", "x:2"))
    assert "x:1" in linked
    assert "x:2" in linked
    assert "x:3" not in linked


def test_the_latest_are_remembered() -> None:
    linked = LinkedUris()
    linked.note(result("old"))
    linked.note(result(*(f"x:{number}" for number in range(MAX_URIS))))
    assert "old" not in linked
    assert f"x:{MAX_URIS - 1}" in linked


@pytest.mark.parametrize(
    "body",
    [
        b'{"content":[{"type":"text","text":"\\"resource_link\\" x:1"}]}',
        b'{"content":[{"type":"resource_link","uri":7}],"x":"x:1"}',
        b'{"content":"resource_link"}',
        b'{"content":[{"type":"resource_link","uri":"' + b"x" * (MAX_URI_CHARS + 1) + b'"}]}',
    ],
)
def test_what_is_no_link_is_not_known(body: bytes) -> None:
    linked = LinkedUris()
    linked.note(body)
    assert not linked


@given(st.binary(max_size=100))
def test_whatever_a_result_says_is_looked_at_without_an_error(noise: bytes) -> None:
    LinkedUris().note(b'{"resource_link"' + noise)
    LinkedUris().note(b'"resource_link"' + noise)
