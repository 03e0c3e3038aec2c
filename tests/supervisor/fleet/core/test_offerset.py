"""A list of prompts, resources or templates: what may be shown of it, and what is left out and why."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.fleet.core import offerset
from quarterdeck.fleet.core.offerset import (
    MAX_EXPRESSIONS,
    MAX_TEMPLATES,
    MAX_WARNINGS,
    has_capability,
    parse_offers,
    promised,
    subscribes,
    uri_problem,
)
from quarterdeck.fleet.core.toolset import ToolsetError
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.mcp.client.notes import MAX_URI_CHARS
from quarterdeck_protocol.mcp.jsonrpc import check_object
from quarterdeck_protocol.offers import Listing

CONFIG = StdioServerConfig(id="s", command="x")
PROMPTS, RESOURCES, TEMPLATES = Listing.PROMPTS, Listing.RESOURCES, Listing.TEMPLATES


def parsed(listing: Listing, *items: Any) -> tuple[list[str], list[str]]:
    found = parse_offers(CONFIG, listing, json.dumps(items).encode())
    return [each.key for each in found.items], list(found.warnings)


def test_an_item_is_kept_whole_and_known_by_its_own_name() -> None:
    """Members that we do not know would be lost."""
    item = {"uri": "file:///ä b", "name": "b", "x-own": [1, None], "icons": [{"src": "data:,"}], "_meta": {"k": 1}}
    [found] = parse_offers(CONFIG, RESOURCES, json.dumps([item]).encode()).items
    assert (found.server, found.listing, found.key, found.public) == ("s", RESOURCES, "file:///ä b", "file:///ä b")
    assert json.loads(found.definition) == item


@pytest.mark.parametrize(
    ("listing", "item", "words"),
    [
        (PROMPTS, {"name": "a b"}, "is not a name"),
        (PROMPTS, {"name": ""}, "is not a name"),
        (PROMPTS, {"name": "x" * 129}, "is not a name"),
        (PROMPTS, {"name": "a", "arguments": [{"description": "x"}]}, "broken"),
        (PROMPTS, {"name": "a", "arguments": "x"}, "broken"),
        (PROMPTS, {}, "broken"),
        (PROMPTS, 7, "broken"),
        (PROMPTS, None, "broken"),
        (PROMPTS, {"name": "a", "x": "y" * offerset.MAX_DEFINITION_BYTES}, "bytes"),
        (RESOURCES, {"uri": "file:///a"}, "broken"),
        (RESOURCES, {"uri": "no uri", "name": "a"}, "is not a URI"),
        (RESOURCES, {"uri": "", "name": "a"}, "is not a URI"),
        (RESOURCES, {"uri": "x:", "name": "a"}, "is not a URI"),
        (RESOURCES, {"uri": "file:///a\nb", "name": "a"}, "is not a URI"),
        (RESOURCES, {"uri": "file:///\u2028", "name": "a"}, "is not a URI"),
        (RESOURCES, {"uri": "http://", "name": "a"}, "is not a URI"),
        (RESOURCES, {"uri": "http://[::1", "name": "a"}, "is not a URI"),
        (RESOURCES, {"uri": "http://h:x/", "name": "a"}, "is not a URI"),
        (RESOURCES, {"uri": "file:" + "x" * MAX_URI_CHARS, "name": "a"}, "characters"),
        (RESOURCES, {"uri": "file:///a", "name": "a", "mimeType": 7}, "broken"),
        (TEMPLATES, {"uriTemplate": "x:{a", "name": "a"}, "is not a template"),
        (TEMPLATES, {"uriTemplate": "x:a}", "name": "a"}, "is not a template"),
        (TEMPLATES, {"uriTemplate": "x:{{a}}", "name": "a"}, "is not a template"),
        (TEMPLATES, {"uriTemplate": "x:{}", "name": "a"}, "is not a template"),
        (TEMPLATES, {"uriTemplate": "", "name": "a"}, "is not a template"),
        (TEMPLATES, {"uriTemplate": "{a}" * (MAX_EXPRESSIONS + 1), "name": "a"}, "expressions"),
        (TEMPLATES, {"uriTemplate": "x:" + "y" * MAX_URI_CHARS, "name": "a"}, "characters"),
    ],
)
def test_what_clients_would_refuse_is_left_out_alone(listing: Listing, item: Any, words: str) -> None:
    """One bad item of one server would cost a client the lists of all."""
    good = {PROMPTS: {"name": "ok"}, RESOURCES: {"uri": "o:k", "name": "ok"}}.get(
        listing, {"uriTemplate": "o:{k}", "name": "ok"}
    )
    keys, [warning] = parsed(listing, item, good)
    assert len(keys) == 1
    assert words in warning
    assert warning.startswith(f"item 1 of the {listing.noun} of s is left out: ")


def test_the_second_of_one_name_is_left_out() -> None:
    """Nobody could ask for it."""
    keys, [warning] = parsed(PROMPTS, {"name": "a", "title": "1"}, {"name": "a"})
    assert keys == ["a"]
    assert "is listed already" in warning


def test_templates_without_end_are_so_many_and_the_others_counted() -> None:
    """A URI that no list has would be held against thousands of them, at each read."""
    keys, warnings = parsed(
        TEMPLATES, *({"uriTemplate": f"x:{n}{{a}}", "name": "t"} for n in range(MAX_TEMPLATES + 30))
    )
    assert keys == [f"x:{n}{{a}}" for n in range(MAX_TEMPLATES)]
    assert "it has 500 templates already" in warnings[0]
    assert warnings[-1] == "10 more of the templates of resources of s are left out"
    keys, _ = parsed(RESOURCES, *({"uri": f"x:{n}", "name": "r"} for n in range(MAX_TEMPLATES + 1)))
    assert len(keys) == MAX_TEMPLATES + 1


def test_a_list_of_bad_items_is_a_few_lines_and_a_number() -> None:
    """Five thousand lines would fill the log at each start."""
    keys, warnings = parsed(RESOURCES, *[{"uri": "bad", "name": "x"}] * 1_000)
    assert keys == []
    assert len(warnings) == MAX_WARNINGS + 1
    assert warnings[-1] == f"{1_000 - MAX_WARNINGS} more of the resources of s are left out"


@pytest.mark.parametrize("body", [b"{}", b"", b"[", b"\xff", b"[" * 5_000])
def test_what_is_no_list_is_an_error(body: bytes) -> None:
    """Nonsense would look like a server that offers nothing."""
    with pytest.raises(ToolsetError, match="not a list"):
        parse_offers(CONFIG, PROMPTS, body)


def test_reading_stops_when_nobody_wants_it_any_more() -> None:
    """A thread would go on for a server that is gone."""
    with pytest.raises(ToolsetError, match="too long to read"):
        parse_offers(CONFIG, PROMPTS, b'[{"name":"a"}]', lambda: False)


@given(st.text() | st.from_regex(r"[a-z]{1,4}:(//)?[\x00-\uffff]{0,20}", fullmatch=True))
def test_any_text_is_judged_and_what_passes_is_one_line(uri: str) -> None:
    """A URI would break a log line or a client's stream, or the judge itself fall."""
    if not uri_problem(uri):
        assert uri.isprintable() or not any(ord(char) < 32 for char in uri)
        assert ":" in uri
        assert len(uri.splitlines()) == 1


@given(st.lists(st.dictionaries(st.sampled_from(["name", "uri", "arguments", "size"]), st.text() | st.integers())))
def test_what_is_shown_is_an_object_that_was_sent(items: list[Any]) -> None:
    """Whatever a server lists."""
    body = json.dumps(items).encode()
    for listing in (PROMPTS, RESOURCES, TEMPLATES):
        for each in parse_offers(CONFIG, listing, body).items:
            check_object(each.definition, max_bytes=10_000)
            assert json.loads(each.definition) in items


@pytest.mark.parametrize(
    ("capabilities", "lists"),
    [
        (b"{}", set()),
        (b'{"tools":{}}', set()),
        (b'{"prompts":{}}', {PROMPTS}),
        (b'{"prompts":null,"resources":true}', {RESOURCES, TEMPLATES}),
        (b'{"resources":{"subscribe":true},"x":1}', {RESOURCES, TEMPLATES}),
    ],
)
def test_a_list_is_promised_by_its_capability(capabilities: bytes, lists: set[Listing]) -> None:
    """A server would be asked for what it has not, at each start."""
    assert promised(capabilities) == lists


def test_what_a_server_can_is_read_from_its_own_words() -> None:
    """It would be asked to tell of changes that it does not tell of."""
    assert subscribes(b'{"resources":{"subscribe":true}}')
    assert not subscribes(b'{"resources":{"subscribe":false}}')
    assert not subscribes(b'{"resources":{}}')
    assert not subscribes(b"{}")
    assert not subscribes(b'{"resources":true}')
    assert not subscribes(b'{"resources":null}')
    assert has_capability(b'{"logging":{}}', "logging")
    assert not has_capability(b"{}", "logging")
