"""One server as its overrides show it: what is asked by public names and arguments comes to it in its own."""

import json
from dataclasses import replace

import msgspec
import pytest
from support.fleet.memory_fleet import FakeEndpoint
from support.tools.allowances import OnlyReads

from quarterdeck.bridge.overrides.endpoint import OverriddenEndpoint
from quarterdeck.config.overrides import ServerOverrides
from quarterdeck.fleet.workers.requests import ended
from quarterdeck_protocol.contract import RemoteTool
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.offers import Listing, RawRequest
from quarterdeck_protocol.tools import Client, RawCall

pytestmark = pytest.mark.anyio

SAID = ServerOverrides.model_validate(
    {
        "rename": {"create": "new", "plan": "think"},
        "hide": ["delete", "file:///etc/*", "secret", "db://{table}"],
        "arguments": {"create": {"owner": "me", "n": {"default": 1}}},
    }
)

SCHEMA = {"type": "object", "properties": {"owner": {}, "n": {}, "title": {}}}


class Server(FakeEndpoint):
    """One that takes arguments, and has the rest, too."""

    def __init__(self) -> None:
        super().__init__("gh", "create", "delete", "list")
        self._tools = tuple(map(_with_schema, self._tools))
        self.have(Listing.PROMPTS, {"name": "plan"}, {"name": "secret"})
        self.have(Listing.RESOURCES, {"uri": "file:///etc/hosts", "name": "h"}, {"uri": "db://open", "name": "o"})
        self.have(Listing.TEMPLATES, {"uriTemplate": "db://{table}", "name": "t"})

    def has_linked(self, uri: str) -> bool:
        """See `LiveEndpoint`."""
        return uri.startswith("file:")


def _with_schema(tool: RemoteTool) -> RemoteTool:
    definition = msgspec.json.encode({"name": tool.ref.name, "inputSchema": SCHEMA})
    return replace(tool, descriptor=replace(tool.descriptor, definition=definition))


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def shown(server: Server) -> OverriddenEndpoint:
    return OverriddenEndpoint(server, SAID)


async def called(shown: OverriddenEndpoint, tool: str, **arguments: object) -> str:
    """What came of a call: the server's answer, or a fault's code."""
    try:
        result = await ended(lambda deliver: shown.begin(RawCall(tool, msgspec.json.encode(arguments)), deliver))
    except ProtocolFault as fault:
        return fault.code
    assert result is not None
    return result.text


async def asked(shown: OverriddenEndpoint, method: str, **params: object) -> str:
    """The same of another request; "" where the server was asked."""
    try:
        await ended(lambda deliver: shown.forward(RawRequest(method, msgspec.json.encode(params)), deliver))
    except ProtocolFault as fault:
        return fault.code
    return ""


async def test_a_call_comes_to_the_server_by_its_own_name_with_the_users_arguments(shown: OverriddenEndpoint) -> None:
    """The server would be asked for a tool that it does not know, or without what was fixed."""
    assert await called(shown, "new", title="x") == 'create {"title":"x","owner":"me","n":1}'
    assert await called(shown, "new", n=2) == 'create {"n":2,"owner":"me"}'
    assert await called(shown, "list", n=2) == 'list {"n":2}'
    assert (await shown.invoke("new", {"title": "y"})).text == 'create {"title":"y","owner":"me","n":1}'


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("create", {}, "unknown_tool"),  # it has another name
        ("delete", {}, "unknown_tool"),
        ("new", {"owner": "you"}, "bad_arguments"),
    ],
)
async def test_what_may_not_be_called_so_is_refused_by_every_way(
    server: Server, shown: OverriddenEndpoint, tool: str, arguments: dict[str, object], code: str
) -> None:
    """Hidden for a list only, a tool would still run; or a model choose what the user fixed."""
    assert await called(shown, tool, **arguments) == code
    assert await asked(shown, "tools/call", name=tool, arguments=arguments, task={}) == code
    with pytest.raises(ProtocolFault):
        await shown.invoke(tool, arguments)
    assert (server.begun, server.forwarded) == ([], [])


@pytest.mark.parametrize(
    ("client", "hint"), [(Client(), ": did you mean 'create'?"), (Client("c", "c", OnlyReads()), "")]
)
async def test_a_slip_is_helped_with_what_its_client_may_use_alone(server: Server, client: Client, hint: str) -> None:
    """A client would learn what there is beside its group."""
    shown = OverriddenEndpoint(server, ServerOverrides(hide=("creat",)))
    with pytest.raises(ProtocolFault) as caught:
        await ended(lambda deliver: shown.begin(RawCall("creat", b"{}", client=client), deliver))
    assert str(caught.value) == f"gh offers no tool 'creat'{hint}"
    assert "did you mean" not in str(shown.refusal("creat")), "of nobody in particular"


async def test_a_tool_whose_argument_cannot_be_fixed_is_not_called(server: Server) -> None:
    """By its name it would run without the bound that was set."""
    shown = OverriddenEndpoint(server, ServerOverrides.model_validate({"arguments": {"list": {"repo": 1}}}))
    assert await called(shown, "list") == "unknown_tool"
    assert "list" not in {each.ref.name for each in shown.offered()}


async def test_a_call_that_becomes_a_task_has_the_users_arguments(server: Server, shown: OverriddenEndpoint) -> None:
    """A client that wants a task would get round what was fixed."""
    assert await asked(shown, "tools/call", name="new", arguments={"title": "x"}, task={"ttl": 1}) == ""
    params = json.loads(server.forwarded[0].params)
    assert params == {"name": "create", "arguments": {"title": "x", "owner": "me", "n": 1}, "task": {"ttl": 1}}


async def test_prompts_are_asked_for_by_the_servers_own_names(server: Server, shown: OverriddenEndpoint) -> None:
    """A renamed prompt could be listed and never got; a hidden one be got by its name."""
    assert await asked(shown, "prompts/get", name="think", arguments={"a": "b"}) == ""
    reference = {"type": "ref/prompt", "name": "think"}
    assert await asked(shown, "completion/complete", ref=reference, argument={"name": "a", "value": ""}) == ""
    assert [json.loads(each.params).get("name") for each in server.forwarded] == ["plan", None]
    assert json.loads(server.forwarded[1].params)["ref"] == {"type": "ref/prompt", "name": "plan"}
    for name in ("plan", "secret"):
        assert await asked(shown, "prompts/get", name=name) == "unknown_prompt"
        assert await asked(shown, "completion/complete", ref={"type": "ref/prompt", "name": name}) == "unknown_prompt"


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        *((uri, "unknown_resource") for uri in ("file:///etc/hosts", "file:///x/../etc/%68osts", "db://users")),
        *((uri, "unknown_resource") for uri in ("file:/etc/hosts", "file:///e\ttc/hosts", "file://host/etc/hosts")),
        *(
            (uri, "unknown_resource")
            for uri in ("db:/users", "DB://users", "db://us\ners", "db://%75sers", "/etc/hosts")
        ),
        *((uri, "") for uri in ("db://open", "x:1", "x:a b", "file:///home/a b")),
    ],
)
async def test_a_hidden_resource_is_neither_read_nor_subscribed(shown: OverriddenEndpoint, uri: str, code: str) -> None:
    """Its URI, or one of a hidden template's, would be enough to read it."""
    assert await asked(shown, "resources/read", uri=uri) == code
    assert await asked(shown, "resources/subscribe", uri=uri) == code
    for more in ({}, {"name": "think"}):  # by which it could pass for a prompt
        reference = {"type": "ref/resource", "uri": uri} | more
        assert await asked(shown, "completion/complete", ref=reference) == code
    assert shown.has_linked("file:///etc/hosts") is False
    assert shown.has_linked("file:///home") is True


@pytest.mark.parametrize(
    ("template", "value", "code"),
    [
        ("file:///{+path}", "home/", ""),
        ("file:///{+path}", "etc/pass", "unknown_resource"),
        ("file:///home/{path}", "../etc/pass", "unknown_resource"),
        ("file:///home/{path}", "a b", ""),
        ("file:///home/{path}", 1, "bad_arguments"),
    ],
)
async def test_a_value_is_not_completed_below_what_is_hidden(
    server: Server, shown: OverriddenEndpoint, template: str, value: object, code: str
) -> None:
    """A client would be told the names of hidden files, letter by letter."""
    server.have(Listing.TEMPLATES, {"uriTemplate": template, "name": "f"})
    argument = {"name": "path", "value": value}
    reference = {"type": "ref/resource", "uri": template}
    assert await asked(shown, "completion/complete", ref=reference, argument=argument) == code


def test_lists_stay_the_same_objects_until_the_servers_change(server: Server, shown: OverriddenEndpoint) -> None:
    """Each look would be taken for a change, and every client told."""
    first = shown.offered()
    assert shown.offered() is first
    assert shown.offers(Listing.PROMPTS) is shown.offers(Listing.PROMPTS)
    server._tools = (*server._tools[:1], *server._tools[2:])
    again = shown.offered()
    assert again is not first
    assert again[0] is first[0]
