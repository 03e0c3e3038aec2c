"""Whose a request is, and what it is there: names, URIs, overrides and grants, in tables."""

import json
from collections.abc import Collection

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tools.allowances import OnlyA, OnlyReads
from support.tools.offer_fleet import OfferServer

from quarterdeck.config.groups import Group
from quarterdeck.host.offers.groups import LiveGroups
from quarterdeck.route.catalogue import CalledTool, Catalogue
from quarterdeck.route.resolve import MAX_URI_CHARS, Route, public_uri, resolve, resolve_call, sent_arguments
from quarterdeck_protocol.faults import Delivery, ProtocolFault
from quarterdeck_protocol.offers import Listing
from quarterdeck_protocol.tools import ANONYMOUS, Client

from .catalogues import catalogue_of, definition, overrides, server_of


def route_of(
    catalogue: Catalogue,
    method: str,
    params: object,
    client: Client = ANONYMOUS,
    links: Collection[tuple[str, str]] = (),
) -> Route | ProtocolFault:
    return resolve(catalogue, client, method, msgspec.json.encode(params), lambda *pair: pair in links)


def asked(
    catalogue: Catalogue,
    method: str,
    params: object,
    client: Client = ANONYMOUS,
    links: Collection[tuple[str, str]] = (),
) -> tuple[str, object] | str:
    found = route_of(catalogue, method, params, client, links)
    return found.code or "" if isinstance(found, ProtocolFault) else (found.server, json.loads(found.params))


# Names


@pytest.mark.parametrize("name", ["read", "other__read", "", "fs", "fs__", "__read"])
def test_what_is_no_servers_tool_is_left_to_others(name: str) -> None:
    """A native tool would be called unknown, or a server be asked for what only we have."""
    assert resolve_call(catalogue_of(server_of("fs", "read")), name) is None


@pytest.mark.parametrize(("name", "own"), [("fs__read", "read"), ("fs__read__all", "read__all"), ("fs__gone", "gone")])
def test_a_call_goes_to_its_server_by_its_own_name_untouched(name: str, own: str) -> None:
    """The server would be asked for a tool that it does not know, with other bytes than its client sent."""
    found = resolve_call(catalogue_of(server_of("fs", "read")), name)
    assert isinstance(found, CalledTool)
    assert (found.server, found.key, found.own) == ("fs", own, own)
    assert sent_arguments(found, b'{"n":1.0}') == b'{"n":1.0}'


def test_a_lone_server_is_called_by_its_tools_own_names() -> None:
    """Put before one server, we would rename what prompts and permissions of its users name."""
    catalogue = catalogue_of(server_of("fs", "read", "fs__stat", prompts=("p",)), alone="fs")
    found = [resolve_call(catalogue, name) for name in ("read", "fs__stat")]
    assert [each.own for each in found if isinstance(each, CalledTool)] == ["read", "fs__stat"]
    assert asked(catalogue, "prompts/get", {"name": "p"}) == ("fs", {"name": "p"})


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        (
            "prompts/get",
            {"name": "one__p", "arguments": {"a": "1"}, "x": [1]},
            {"name": "p", "arguments": {"a": "1"}, "x": [1]},
        ),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "one__p"}},
            {"ref": {"type": "ref/prompt", "name": "p"}},
        ),
        (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": "t:{x}"}},
            {"ref": {"type": "ref/resource", "uri": "t:{x}"}},
        ),
        ("resources/read", {"uri": "quarterdeck+one:t:1"}, {"uri": "t:1"}),
        ("resources/subscribe", {"uri": "t:1"}, {"uri": "t:1"}),
    ],
)
def test_a_request_is_asked_in_its_servers_words_with_all_else_untouched(
    method: str, params: object, expected: object
) -> None:
    """A server would be asked for what only our clients know, or lose what its clients sent."""
    one = server_of("one", "t", prompts=("p",), templates=("t:{x}",))
    assert asked(catalogue_of(one, OfferServer("two", prompts=("p",))), method, params) == ("one", expected)


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("prompts/get", {"name": "nobody__one"}, "unknown_prompt"),
        ("prompts/get", {"name": 1}, "bad_arguments"),
        ("prompts/get", {}, "unknown_prompt"),
        ("prompts/get", [], "bad_arguments"),
        ("resources/read", {"uri": "y:1"}, "unknown_resource"),
        ("resources/read", {"uri": "quarterdeck+nobody:y:1"}, "unknown_resource"),
        ("resources/read", {"uri": "x:" + "a" * MAX_URI_CHARS}, "unknown_resource"),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "y:{x}"}}, "unknown_resource"),
        ("completion/complete", {"ref": []}, "bad_arguments"),
    ],
)
def test_what_belongs_to_nobody_is_refused_with_words_of_bounded_length(method: str, params: object, code: str) -> None:
    """A client would wait for nobody, or be sent its own 60 MB back."""
    catalogue = catalogue_of(
        OfferServer("a", resources=("x:1",), templates=("x:{id}",)), OfferServer("b", resources=("z:1",))
    )
    found = route_of(catalogue, method, params)
    assert (found.code, found.delivery, len(found.message) < 400) == (code, Delivery.NOT_SENT, True)


@given(st.binary(max_size=200), st.sampled_from(["prompts/get", "resources/read", "completion/complete"]))
def test_no_params_raise(params: bytes, method: str) -> None:
    """A client could end its carrier with one line."""
    catalogue = catalogue_of(server_of("a", "t", resources=("x:1",)), overrides={"a": overrides(hide=["x:*"])})
    assert isinstance(resolve(catalogue, ANONYMOUS, method, params), Route | ProtocolFault)


# URIs that no server lists


@pytest.mark.parametrize(
    ("uri", "server"), [("x:0", "one"), ("x:9", "two"), ("x:5", "two"), ("x:6", "one"), ("y:7", "two"), ("z:1", None)]
)
def test_a_uri_is_of_who_lists_it_then_who_linked_to_it_then_who_has_a_template_then_the_one_of_its_scheme(
    uri: str, server: str | None
) -> None:
    """A link in a result would lead to another server, or nowhere."""
    templated = OfferServer("one", resources=("x:0",), templates=("x:{id}", "{+any}"))
    linking = OfferServer("two", resources=("x:9", "y:1"))
    found = route_of(catalogue_of(templated, linking), "resources/read", {"uri": uri}, links={("two", "x:5")})
    assert (found.server if isinstance(found, Route) else None) == server


def test_where_one_server_alone_has_resources_every_uri_is_its_own() -> None:
    """What it makes up from its own arguments could not be read."""
    catalogue = catalogue_of(OfferServer("one", resources=("x:1",)), OfferServer("two"))
    assert asked(catalogue, "resources/read", {"uri": "other:1"}) == ("one", {"uri": "other:1"})


def test_of_two_servers_with_one_uri_each_can_be_read_and_its_news_told_apart() -> None:
    """One server would be read for the other, or its changes be taken for the other's."""
    catalogue = catalogue_of(OfferServer("one", resources=("x:1",)), OfferServer("two", resources=("x:1",)))
    assert asked(catalogue, "resources/read", {"uri": "x:1"}) == ("one", {"uri": "x:1"})
    assert asked(catalogue, "resources/read", {"uri": "quarterdeck+two:x:1"}) == ("two", {"uri": "x:1"})
    assert [public_uri(catalogue, server, "x:1") for server in ("one", "two")] == ["x:1", "quarterdeck+two:x:1"]


# What the user has shown otherwise

SAID = overrides(
    rename={"create": "new", "plan": "think"},
    hide=["delete", "file:///etc/*", "secret", "db://{table}"],
    arguments={"create": {"owner": "me", "n": {"default": 1}}},
)

SCHEMA = {"type": "object", "properties": {"owner": {}, "n": {}, "title": {}}}


def overridden(*templates: str) -> Catalogue:
    """One server, shown as `SAID`."""
    server = OfferServer(
        "gh",
        prompts=("plan", "secret"),
        resources=("file:///etc/hosts", "db://open"),
        templates=templates or ("db://{table}",),
        tools={name: definition(name, inputSchema=SCHEMA) for name in ("create", "delete", "list")},
    )
    return catalogue_of(server, overrides={"gh": SAID})


@pytest.mark.parametrize(
    ("tool", "sent", "expected"),
    [
        ("new", {"title": "x"}, ("create", {"title": "x", "owner": "me", "n": 1})),
        ("new", {"n": 2}, ("create", {"n": 2, "owner": "me"})),
        ("list", {"n": 2}, ("list", {"n": 2})),
        ("create", {}, "unknown_tool"),  # it has another name
        ("delete", {}, "unknown_tool"),
        ("new", {"owner": "you"}, "bad_arguments"),
        ("new", [], "bad_arguments"),
    ],
)
def test_a_call_has_the_users_arguments_and_what_may_not_be_called_so_is_refused(
    tool: str, sent: object, expected: object
) -> None:
    """Hidden for a list only, a tool would still run; or a model choose what the user fixed."""
    found = resolve_call(overridden(), f"gh__{tool}")
    params = sent_arguments(found, msgspec.json.encode(sent)) if isinstance(found, CalledTool) else found
    if isinstance(params, ProtocolFault):
        assert params.code == expected
    else:
        assert isinstance(found, CalledTool)
        assert (found.own, json.loads(params or b"")) == expected


@pytest.mark.parametrize(
    ("client", "hint"), [(ANONYMOUS, ": did you mean 'create'?"), (Client("c", "c", OnlyReads()), "")]
)
def test_a_slip_is_helped_with_what_its_client_may_use_alone(client: Client, hint: str) -> None:
    """A client would learn what there is beside its group."""
    catalogue = catalogue_of(server_of("gh", "create"), overrides={"gh": overrides(hide=["creat"])})
    found = resolve_call(catalogue, "gh__creat", client)
    assert str(found) == f"gh offers no tool 'creat'{hint}"


def test_a_tool_whose_argument_cannot_be_fixed_is_not_called() -> None:
    """By its name it would run without the bound that was set."""
    catalogue = catalogue_of(server_of("gh", "list"), overrides={"gh": overrides(arguments={"list": {"repo": 1}})})
    found = resolve_call(catalogue, "gh__list")
    assert str(found).startswith("gh cannot offer 'list' as the configuration says: ")


@pytest.mark.parametrize(("name", "own"), [("think", "plan"), ("plan", None), ("secret", None)])
def test_prompts_are_asked_for_by_the_servers_own_names(name: str, own: str | None) -> None:
    """A renamed prompt could be listed and never got; a hidden one be got by its name."""
    named = {"name": f"gh__{name}"}
    expected = ("gh", {"name": own}) if own else "unknown_prompt"
    assert asked(overridden(), "prompts/get", named) == expected
    reference = {"ref": {"type": "ref/prompt", **named}}
    expected = ("gh", {"ref": {"type": "ref/prompt", "name": own}}) if own else "unknown_prompt"
    assert asked(overridden(), "completion/complete", reference) == expected


@pytest.mark.parametrize(
    ("uri", "is_shown"),
    [
        *((uri, False) for uri in ("file:///etc/hosts", "file:///x/../etc/%68osts", "db://users")),
        *((uri, False) for uri in ("file:/etc/hosts", "file:///e\ttc/hosts", "file://host/etc/hosts")),
        *((uri, False) for uri in ("db:/users", "DB://users", "db://us\ners", "db://%75sers", "/etc/hosts")),
        *((uri, True) for uri in ("db://open", "x:1", "x:a b", "file:///home/a b")),
    ],
)
@pytest.mark.parametrize("is_linked", [True, False])
def test_a_hidden_resource_is_neither_read_nor_subscribed_nor_completed(
    uri: str, *, is_shown: bool, is_linked: bool
) -> None:
    """Its URI, or one of a hidden template's, or a link to it, would be enough to read it."""
    # Without a scheme it could mean a hidden file; and white space is in a URI only where its server wrote it.
    if (is_linked and ":" not in uri) or (is_shown and not is_linked and " " in uri):
        return
    links = {("gh", uri)} if is_linked else set[tuple[str, str]]()
    for method, params in (
        ("resources/read", {"uri": uri}),
        ("resources/subscribe", {"uri": uri}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": uri}}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": uri, "name": "think"}}),
    ):
        assert (asked(overridden(), method, params, links=links) == "unknown_resource") is not is_shown


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
def test_a_value_is_not_completed_below_what_is_hidden(template: str, value: object, code: str) -> None:
    """A client would be told the names of hidden files, letter by letter."""
    params = {"ref": {"type": "ref/resource", "uri": template}, "argument": {"name": "path", "value": value}}
    found = asked(overridden(template), "completion/complete", params)
    assert (found if isinstance(found, str) else "") == code


# Grants


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", {"name": "b__p"}),
        ("resources/read", {"uri": "b:1"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "b__p"}}),
    ],
)
def test_a_token_reaches_nothing_of_a_server_that_it_does_not_allow(method: str, params: object) -> None:
    """A token would be worth as much as another."""
    catalogue = catalogue_of(*(OfferServer(name, prompts=("p",), resources=(f"{name}:1",)) for name in "ab"))
    ci = Client("ci", "t", OnlyA())
    assert asked(catalogue, method, params, ci) == "not_granted"
    own = json.loads(json.dumps(params).replace("b__", "a__").replace("b:", "a:"))
    assert asked(catalogue, method, own, ci)[0] == "a"


class OnlyPrompts(OnlyA):
    """A token that allows prompts alone."""

    def allows(self, name: str, listing: str = "tools") -> bool:
        """See `Allowance`."""
        return listing == Listing.PROMPTS


@pytest.mark.parametrize(
    ("reference", "is_allowed"),
    [
        ({"type": "ref/prompt", "name": "a__p"}, True),
        ({"type": "ref/prompt", "name": "a__p", "uri": "a:1"}, True),
        ({"type": "ref/resource", "uri": "a:1"}, False),
        ({"type": "ref/resource", "uri": "a:1", "name": "a__p"}, False),
    ],
)
def test_a_completion_is_of_what_its_reference_says_it_is(reference: object, *, is_allowed: bool) -> None:
    """Whoever may use prompts alone would ask after resources, by giving those a name, too."""
    catalogue = catalogue_of(OfferServer("a", prompts=("p",), resources=("a:1",)))
    found = asked(catalogue, "completion/complete", {"ref": reference}, Client("ci", "t", OnlyPrompts()))
    assert (found == "not_granted") is not is_allowed


GROUP = Group(resources=("fs__file:///docs/*", "fs__memo:a*"), hide=("fs__file:///docs/secret*",))
DOCS = LiveGroups({"docs": GROUP}).narrow(Client("ci", "t"), ("docs",))

REFUSED = (
    *("file:///etc/passwd", "file:///docs/.\t./private", "file:///docs/.\n./private", "file:///docs/..\r/private"),
    *("file:///docs/secret.txt", "file:/docs/secret.txt", "file:///docs/s\tecret.txt", "file:///docs/%73ecret.txt"),
    *("file:/docs/a", "file://localhost/docs/a", "FILE:///docs/a", "file:///docs/a b", "file:///docs/b\\c", "docs/a"),
    *("file:///docs/a#secret", "file:///docs/%252e%252e/private", "memo:b", "memo:a/../b", "Memo:a"),
)


@pytest.mark.parametrize("prefix", ["", "quarterdeck+fs:"])
@pytest.mark.parametrize("uri", REFUSED)
def test_a_client_of_a_group_reaches_nothing_else_by_another_spelling(uri: str, prefix: str) -> None:
    """A group of one folder would be a way to every file of its server."""
    catalogue = catalogue_of(
        OfferServer("fs", resources=("file:///docs/a",), templates=("file:///{+path}", "memo:{id}"))
    )
    public = prefix + uri
    for method in ("resources/read", "resources/subscribe"):
        assert asked(catalogue, method, {"uri": public}, DOCS) == "not_granted"
    completion = {"ref": {"type": "ref/resource", "uri": public}, "argument": {"name": "path", "value": ""}}
    assert asked(catalogue, "completion/complete", completion, DOCS) == "not_granted"


@pytest.mark.parametrize(
    "uri", ["file:///docs/a", "file:///docs/b%20c", "memo:ab", "file:///docs/My Notes", "memo:a é"]
)
def test_a_client_of_a_group_reads_by_the_canonical_spelling_and_by_the_servers_own(uri: str) -> None:
    """What a group lists could not be read, where its server writes white space in URIs."""
    listed = ("file:///docs/a", "file:///docs/My Notes")
    catalogue = catalogue_of(OfferServer("fs", resources=listed, templates=("memo:{id}",)))
    for public in (uri, f"quarterdeck+fs:{uri}"):
        found = asked(catalogue, "resources/read", {"uri": public}, DOCS, links={("fs", "memo:a é")})
        assert found == ("fs", {"uri": uri})


def test_a_refused_spelling_is_told_what_is_wrong_with_it() -> None:
    """A model would try the same URI again and again."""
    catalogue = catalogue_of(OfferServer("fs", resources=("file:///docs/a",)))
    assert str(route_of(catalogue, "resources/read", {"uri": "file:///docs/a b"}, DOCS)) == (
        "the group 'docs' does not allow 'file:///docs/a b', which is not a URI in canonical form: "
        "it has white space, which is written %20"
    )


@pytest.mark.parametrize(("value", "is_allowed"), [("a", True), ("", True), ("../private/", False), ("b c", True)])
def test_a_value_is_completed_within_the_group_alone(value: str, *, is_allowed: bool) -> None:
    """A client would be told the names of files beside its folder."""
    catalogue = catalogue_of(OfferServer("fs", templates=("file:///docs/{+path}",)))
    reference = {"type": "ref/resource", "uri": "file:///docs/{+path}"}
    params = {"ref": reference, "argument": {"name": "path", "value": value}}
    assert (asked(catalogue, "completion/complete", params, DOCS) == "not_granted") is not is_allowed
