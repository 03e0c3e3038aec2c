"""Definitions as clients are shown them."""

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.host.offers.publish import Catalog, as_listed, forms, is_valid
from quarterdeck_protocol.mcp.server.methods import HANDSHAKE_VERSIONS, MODERN_VERSION
from quarterdeck_protocol.tools import ToolDescriptor, ToolHints

LEGACY, MODERN = "2025-11-25", "2026-07-28"
PORTABLE = {"type": "object", "properties": {"p": {}}}
PLAIN = {"name": "s__t", "description": "d", "inputSchema": PORTABLE}
OBJECT = {"type": "object"}


def tool(definition=None, name="s__t"):
    if definition is not None and not isinstance(definition, bytes):
        definition = json.dumps(definition).encode()
    return ToolDescriptor(name, "d", PORTABLE, definition)


def shown(definition, version=LEGACY, **options):
    return Catalog(**options).publish([tool(definition)], version)


def test_only_the_name_is_replaced():
    """Unknown members, nulls and key order are the server's."""
    own = {"x": None, "name": "t", "inputSchema": {"type": "object", "$ref": "#/x", "n": 1.0, "i": 2**80}}
    published = shown(own)
    assert json.dumps(published) == json.dumps([{**own, "name": "s__t"}])


def test_a_tool_without_definition_is_shown_plainly():
    """A native tool has none."""
    assert shown(None) == [PLAIN]


HINTS = ToolHints(read_only=True, destructive=True, idempotent=True, open_world=False)


def native(hints=HINTS, title="Read file"):
    return ToolDescriptor("read", "d", {"type": "object", "properties": {}}, title=title, hints=hints)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", LEGACY, MODERN])
def test_a_native_tool_is_shown_with_its_title_and_what_a_client_may_assume(version):
    """A client would ask its user before every look at a file, or not ask before a change."""
    (published,) = Catalog().publish([native()], version)
    assert published["title"] == "Read file"
    assert published["annotations"] == {
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    assert is_valid(published, version)
    (published,) = Catalog().publish([native(ToolHints(), title="")], version)
    assert "title" not in published
    assert published["annotations"] == {
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": True,
    }


def test_native_tools_of_two_clients_are_built_once():
    """Each list of each client would build and judge them anew."""
    catalog = Catalog()
    (built,) = catalog.publish([native()], LEGACY)
    assert catalog.publish([native()], LEGACY)[0] is built
    assert catalog.publish([native(title="Other")], LEGACY)[0]["title"] == "Other"


def test_portable_schemas_replace_the_input_schema_alone():
    """The rest of the definition is no burden to a weak client."""
    assert shown({"name": "t", "inputSchema": {"anyOf": []}, "x": 1}, portable_schemas=True) == [
        {"name": "s__t", "inputSchema": PORTABLE, "x": 1}
    ]


@pytest.mark.parametrize("execution", [{"taskSupport": "required"}, {"taskSupport": "optional", "x": 1}, {}])
def test_how_a_tool_wants_to_be_run_is_told_as_its_server_says_it(execution):
    """A client could not know of a tool that runs as a task alone; or one of 2026-07-28 wait for a task in vain."""
    definition = {"name": "t", "inputSchema": OBJECT, "execution": execution}
    (published,) = shown(definition)
    assert published["execution"] == execution
    (published,) = shown(definition, MODERN)
    assert published.get("execution") == (None if "taskSupport" in execution else execution)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"[]",
        b'{"name":"\xff"}',
        b'{"n":1e999}',
        {"name": "t"},
        {"name": "t", "inputSchema": {}},
        {"name": "t", "inputSchema": OBJECT, "annotations": 5},
        {"name": "t", "inputSchema": {"type": "object", "x": json.loads("[" * 250 + "]" * 250)}},
        b'{"name":"t","inputSchema":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
@pytest.mark.parametrize("version", [LEGACY, MODERN])
def test_one_bad_definition_does_not_spoil_the_list(bad, version):
    """A client refuses a whole list for one tool that it cannot read; in its plain form the tool still serves."""
    good = tool({"name": "g", "inputSchema": OBJECT}, name="s__g")
    published = Catalog().publish([tool(bad), good], version)
    assert published == [PLAIN, {"name": "s__g", "inputSchema": OBJECT}]
    assert all(is_valid(each, version) for each in published)


def test_an_output_schema_too_new_for_a_client_is_left_out_for_it():
    """2026-07-28 allows any schema, earlier revisions an object's only."""
    own = {"name": "t", "inputSchema": OBJECT, "outputSchema": {"type": "array"}, "x": 1}
    assert shown(own, MODERN) == [{**own, "name": "s__t"}]
    assert shown(own, LEGACY) == [{"name": "s__t", "inputSchema": OBJECT, "x": 1}]


def test_a_tool_that_cannot_be_shown_at_all_is_left_out():
    """Better one tool less than none."""
    broken = ToolDescriptor("s__t", "d", {"type": "array"}, None)
    assert Catalog().publish([broken], LEGACY) == []


def test_the_order_is_the_boxs_and_a_name_counts_once():
    """Clients cache by order, and two tools of one name cannot be told apart."""
    names = ["c__t", "a__t", "b__t", "a__t"]
    published = Catalog().publish([tool(None, name) for name in names], LEGACY)
    assert [each["name"] for each in published] == ["c__t", "a__t", "b__t"]


def test_a_tool_is_built_once_while_its_descriptor_lives():
    """Lists are frequent, definitions large."""
    catalog, first = Catalog(), tool({"name": "t", "inputSchema": OBJECT})
    (built,) = catalog.publish([first], LEGACY)
    assert catalog.publish([first], LEGACY)[0] is built
    assert catalog.publish([tool({"name": "t", "inputSchema": OBJECT})], LEGACY)[0] is not built


def test_header_schemas_are_given_only_for_tools_that_mirror():
    """The others cost nothing at each call."""
    schema = {"type": "object", "properties": {"r": {"type": "string", "x-mcp-header": "R"}}}
    tools = [
        tool({"name": "t", "inputSchema": schema}),
        tool({"name": "p", "inputSchema": OBJECT}, "s__p"),
        tool(None, "n"),
    ]
    catalog = Catalog()
    assert catalog.header_schema(tools, "s__t", MODERN) == schema
    assert [catalog.header_schema(tools, name, MODERN) for name in ("s__p", "n", "nobody")] == [None] * 3


def test_every_form_bears_the_qualified_name():
    """Under any other a call would miss it."""
    assert {form["name"] for _, form in forms(tool({"name": "t", "outputSchema": {}}))} == {"s__t"}


LEAVES: Final = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", "object", "dark", "required"])
)

VALUES: Final = LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(st.sampled_from(["type", "src", "x"]), LEAVES)

TOOLS: Final = st.fixed_dictionaries(
    {"name": st.just("t") | VALUES, "inputSchema": st.just({"type": "object"}) | VALUES},
    optional={
        key: VALUES
        | st.just({"type": "object", "properties": {"a": {}}, "required": ["a"]})
        | st.just({"readOnlyHint": True, "title": "x"})
        | st.just([{"src": "data:x", "sizes": ["1x1"]}])
        | st.just({"taskSupport": "required"})
        for key in ("title", "description", "outputSchema", "annotations", "icons", "execution", "_meta", "x-own")
    },
)


@given(TOOLS)
def test_what_is_forwarded_as_it_is_the_sdk_takes_in_every_revision(tool: dict[str, Any]) -> None:
    """A client refuses a whole list for one bad tool."""
    listed = as_listed(ToolDescriptor("s__t", "", {"type": "object"}, json.dumps(tool).encode()))
    if listed:
        shown = json.loads(listed)
        assert shown == tool | {"name": "s__t"}
        assert all(is_valid(shown, version) for version in (*HANDSHAKE_VERSIONS, MODERN_VERSION))


@pytest.mark.parametrize(
    "definition",
    [
        b'{"name":"t","inputSchema":{"type":"object"},\n"x":1}',
        b'{"name":"t","inputSchema":{"type":"object"},"_meta":{"io.modelcontextprotocol/x":1}}',
        b'{"name":"t","inputSchema":' + b'{"type":"object","not":' * 300 + b"1" + b"}" * 301,
        b'{"name":"t","inputSchema":{"type":"object"}',
        b'{"name":"t","inputSchema":{"type":"array"}}',
    ],
)
def test_what_is_not_plainly_right_is_not_forwarded_as_it_is(definition: bytes) -> None:
    """A line break would end the line, and what the era says of itself would be a server's word."""
    assert as_listed(ToolDescriptor("s__t", "", {"type": "object"}, definition)) == b""


def test_a_definition_keeps_what_only_its_server_knows() -> None:
    """Numbers that no float holds, and members of the future, would be lost on the way."""
    definition = b'{"name":"t","x":1.10,"inputSchema":{"type":"object"},"y":12345678901234567890123}'
    [shown] = Catalog().publish_json([ToolDescriptor("s__t", "", {}, definition)], MODERN_VERSION)
    assert shown == definition.replace(b'"t"', b'"s__t"')
