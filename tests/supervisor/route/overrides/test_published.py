"""From approved definitions to published ones, by what the user overrides."""

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.config.overrides import ServerOverrides
from quarterdeck.route.overrides.published import publish_offers, publish_tools
from quarterdeck_protocol.contract import RemoteTool
from quarterdeck_protocol.names import RemoteToolRef, qualify_tool_name
from quarterdeck_protocol.offers import Listing, Offered
from quarterdeck_protocol.tools import ToolDescriptor


def tool(name: str, **members: object) -> RemoteTool:
    schema = {"type": "object", "properties": {"owner": {"type": "string"}, "n": {"type": "integer"}}}
    definition = {"name": name, "description": f"Does {name}.", "inputSchema": schema, "x-own": [1], **members}
    ref = RemoteToolRef("gh", name)
    described = ToolDescriptor(qualify_tool_name(ref), f"Does {name}.", schema, msgspec.json.encode(definition))
    return RemoteTool(ref, described)


def prompt(name: str) -> Offered:
    return Offered("gh", Listing.PROMPTS, name, msgspec.json.encode({"name": name, "title": "T"}), name)


def overrides(**said: Any) -> ServerOverrides:
    return ServerOverrides.model_validate(said)


def definition_of(shown: RemoteTool) -> Any:
    return json.loads(shown.descriptor.definition or b"")


def test_a_tool_that_nothing_is_said_of_is_the_servers_own() -> None:
    """Every tool would be made anew, and told as a change, for one that is renamed."""
    tools = (tool("a"), tool("b"))
    assert publish_tools(tools, overrides(rename={"b": "c"})).tools[0] is tools[0]


def test_a_tool_is_shown_under_the_users_name_and_words() -> None:
    """The model would read what the user has replaced."""
    said = overrides(rename={"a": "z"}, describe={"a": {"title": "Zed", "description": "Ours."}})
    [shown] = publish_tools([tool("a", title="A", annotations={"title": "A!", "readOnlyHint": True})], said).tools
    assert (shown.ref, shown.descriptor.name) == (RemoteToolRef("gh", "z"), "gh__z")
    assert shown.descriptor.description == "Ours."
    found = definition_of(shown)
    assert (found["name"], found["title"], found["description"]) == ("z", "Zed", "Ours.")
    assert (found["annotations"], found["x-own"]) == ({"readOnlyHint": True}, [1])


def test_an_empty_description_is_the_users_word_too() -> None:
    """Who wants no description at all would get the server's."""
    [shown] = publish_tools([tool("a")], overrides(describe={"a": ""})).tools
    assert (shown.descriptor.description, definition_of(shown)["description"]) == ("", "")


def test_a_fixed_argument_is_in_neither_form_of_the_schema() -> None:
    """Programs that read the portable schema would send what is refused."""
    [shown] = publish_tools([tool("a")], overrides(arguments={"a": {"owner": "me"}})).tools
    assert set(definition_of(shown)["inputSchema"]["properties"]) == {"n"}
    assert shown.descriptor.parameters["properties"] == {"n": {"type": "integer"}}


def test_a_tool_that_cannot_be_bound_as_the_user_wants_is_not_shown() -> None:
    """It would be callable with any value of what the user fixed."""
    published = publish_tools([tool("a"), tool("b")], overrides(arguments={"a": {"repo": 1}}))
    assert [each.ref.name for each in published.tools] == ["b"]
    assert "'repo' cannot be given by you: it is no plain property" in published.refused["a"]


def test_what_is_hidden_is_shown_in_no_list() -> None:
    """Hidden for models, it would be read all the same."""
    said = overrides(hide=["del_*", "file:///etc/*", "secret"])
    assert [each.ref.name for each in publish_tools([tool("del_all"), tool("get")], said).tools] == ["get"]
    rows = [
        Offered("gh", Listing.RESOURCES, uri, b"{}", uri) for uri in ("file:///etc/passwd", "file:///home", "del_x:1")
    ]
    assert [each.key for each in publish_offers(Listing.RESOURCES, rows, said)] == ["file:///home"]
    assert publish_offers(Listing.PROMPTS, [prompt("secret")], said) == ()


def test_a_prompt_is_shown_under_the_users_name_and_words() -> None:
    """Only tools could be named as the user wants."""
    said = overrides(rename={"p": "plan"}, describe={"p": "Plans."})
    [shown] = publish_offers(Listing.PROMPTS, [prompt("p")], said)
    assert (shown.key, shown.public) == ("plan", "plan")
    assert json.loads(shown.definition) == {"name": "plan", "title": "T", "description": "Plans."}


def test_a_new_name_belongs_to_what_it_was_given_to() -> None:
    """A server could take the name that a client knows as another tool."""
    said = overrides(rename={"delete": "safe"})
    assert [each.ref.name for each in publish_tools([tool("safe"), tool("delete")], said).tools] == ["safe"]
    assert publish_tools([tool("safe")], said).refused == {"safe": "'rename' gives its name to another"}
    swapped = publish_tools([tool("a"), tool("b")], overrides(rename={"a": "b", "b": "a"})).tools
    assert [(each.ref.name, each.descriptor.description) for each in swapped] == [("b", "Does a."), ("a", "Does b.")]


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])


@given(
    names=st.lists(NAMES, unique=True),
    renames=st.lists(st.tuples(NAMES, NAMES), unique_by=(lambda pair: pair[0], lambda pair: pair[1])),
    hidden=st.lists(st.sampled_from(["a", "b", "[cd]", "x*"]), max_size=2),
)
def test_no_two_tools_have_one_name_and_each_name_leads_back(
    names: list[str], renames: list[tuple[str, str]], hidden: list[str]
) -> None:
    """A call would run another tool than the one that was read of."""
    said = overrides(rename=dict(renames), hide=hidden)
    published = publish_tools([tool(name) for name in names], said)
    public = [each.ref.name for each in published.tools]
    assert len(set(public)) == len(public)
    own = [said.own(name) for name in public]
    assert [each.descriptor.description for each in published.tools] == [f"Does {name}." for name in own]
    left = {name for name in names if not said.hides(name)} - set(own)
    assert left == published.refused.keys()
