"""A server's list as tools: what is shown, what is left out, and that one bad tool costs no other."""

import gc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.fleet.core import toolset
from quarterdeck.fleet.core.toolset import MAX_DEFINITION_BYTES, Parsed, ToolsetError, parse_tools
from quarterdeck_protocol.configs import StdioServerConfig, ToolFilter
from quarterdeck_protocol.contract import RemoteTool
from quarterdeck_protocol.names import RemoteToolRef

GOOD = b'{"name":"good","inputSchema":{"type":"object"}}'


def parsed(*rows: bytes, tools: ToolFilter | None = None) -> Parsed[RemoteTool]:
    config = StdioServerConfig(id="fs", command="x", tools=tools or ToolFilter())
    return parse_tools(config, b"[" + b",".join(rows) + b"]")


def names(toolset: Parsed[RemoteTool]) -> list[str]:
    return [tool.ref.name for tool in toolset.items]


def test_a_list_that_nobody_wants_any_more_is_not_read_to_its_end() -> None:
    """Thousands of schemas that are hard to read would keep a `serve` for minutes that was told to end."""
    config = StdioServerConfig(id="fs", command="x")
    wanted = iter([True, False])
    with pytest.raises(ToolsetError, match="its 3 tools take too long to read"):
        parse_tools(config, b"[" + b",".join([GOOD] * 3) + b"]", lambda: next(wanted))


def test_a_tool_is_shown_under_its_servers_name_with_its_definition_untouched() -> None:
    """Clients would not see what the server wrote, or two servers' tools would share a name."""
    row = b'{ "name":"read", "description":"reads \xc3\xa4", "inputSchema":{"type":"object","x":1}, "x-own": [1,2] }'
    [tool] = parsed(row).items
    assert tool.ref == RemoteToolRef("fs", "read")
    assert tool.descriptor.name == "fs__read"
    assert tool.descriptor.description == "reads ä"
    assert tool.descriptor.definition == row
    assert tool.descriptor.parameters["type"] == "object"


def test_servers_that_list_the_same_share_what_came_of_reading_it() -> None:
    """Forty servers of one program would each cost the reading of the same schemas, and the memory."""
    row = b'{"name":"shared","description":"reads","inputSchema":{"type":"object","properties":{"a":{"$ref":"#"}}}}'
    [one], [other] = (
        parse_tools(StdioServerConfig(id=server, command="x"), b"[" + row + b"]").items for server in ("a", "b")
    )
    assert (one.ref, other.ref) == (RemoteToolRef("a", "shared"), RemoteToolRef("b", "shared"))
    assert (one.descriptor.name, other.descriptor.name) == ("a__shared", "b__shared")
    assert other.descriptor == replace(one.descriptor, name="b__shared")
    assert other.descriptor.parameters is one.descriptor.parameters
    assert other.descriptor.definition is one.descriptor.definition


def test_what_nobody_lists_any_more_is_not_kept() -> None:
    """A server could have us keep what each of its lists unfolds to."""
    row = b'{"name":"once"}'
    kept = parsed(row).items
    assert row in toolset._known
    del kept
    gc.collect()
    assert row not in toolset._known


@pytest.mark.parametrize(
    "row", [b'{"name":"t"}', b'{"name":"t","description":null,"inputSchema":null}', b'{"name":"t","inputSchema":true}']
)
def test_a_tool_without_words_or_a_schema_takes_any_object(row: bytes) -> None:
    """A terse server's tools would be missing."""
    [tool] = parsed(row).items
    assert tool.descriptor.description == ""
    assert tool.descriptor.parameters["type"] == "object"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (b'{"name":7}', "broken"),
        (b"{}", "broken"),
        (b'"tool"', "broken"),
        (b"null", "broken"),
        (b'{"name":"t","description":[]}', "broken"),
        (b'{"name":"t","x":"\xff"}', "broken"),
        (b'{"name":"t","x":' + b"[" * 5_000 + b"]" * 5_000 + b"}", None),
        (b'{"name":""}', "not a tool name"),
        (b'{"name":"a b"}', "not a tool name"),
        (b'{"name":"' + b"n" * 200 + b'"}', "not a tool name"),
        (b'{"name":"good"}', "listed already"),
        (b'{"name":"t","x":"' + b"x" * MAX_DEFINITION_BYTES + b'"}', "bytes"),
    ],
    ids=["name", "no name", "text", "null", "description", "bytes", "deep", "empty", "space", "long", "twice", "large"],
)
def test_a_tool_that_cannot_be_shown_is_left_out_with_a_reason(row: bytes, words: str | None) -> None:
    """One bad tool would cost a user all the others, or vanish without a word."""
    try:
        toolset = parsed(GOOD, row, GOOD.replace(b"good", b"last"))
    except ToolsetError:
        assert words is None, "only a row that no parser takes may cost the list"
        return
    assert names(toolset) == ["good", "last"]
    [warning] = toolset.warnings
    assert warning.startswith("tool 2 of fs is left out: ")
    assert words is not None
    assert words in warning
    assert len(warning) < 500


def test_the_filter_hides_tools_without_a_word() -> None:
    """A tool that the user denied would be offered, or be warned about at every start."""
    rows = [b'{"name":"%s"}' % name for name in (b"read", b"write", b"rm")]
    toolset = parsed(*rows, tools=ToolFilter(allow=("r*", "w*"), deny=("rm",)))
    assert names(toolset) == ["read", "write"]
    assert toolset.warnings == ()


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"[", b"[1,", b'[{"name":"a"}', b"[]x", b'"list"'])
def test_a_list_that_is_none_is_an_error(body: bytes) -> None:
    """A worker's nonsense would look like a server without tools."""
    with pytest.raises(ToolsetError):
        parse_tools(StdioServerConfig(id="fs", command="x"), body)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(body: bytes) -> None:
    """A hostile worker could end the supervisor's task with a crafted list."""
    config = StdioServerConfig(id="fs", command="x")
    for row in (body, b"[" + body + b"]", b'[{"name":"t","inputSchema":' + body + b"}]"):
        try:
            parse_tools(config, row)
        except ToolsetError:
            pass


def test_an_empty_list_is_a_server_without_tools() -> None:
    """A server with only resources would be an error."""
    assert parsed() == Parsed()
