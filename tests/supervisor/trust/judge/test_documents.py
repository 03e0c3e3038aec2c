"""What a server says and lists, as it can be approved: documents and their hashes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.schemas.json_values import json_values
from support.trust.approvals import INSTRUCTIONS, told_tool

from quarterdeck.ledger.events.events import Approved, Authority, Enrolled, Gone, Scanned, Seen, Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.trust.judge.documents import (
    Document,
    ServerLists,
    bodies_of,
    capabilities_document,
    documents_of,
    hash_of,
    instructions_document,
    offered_document,
    tool_document,
    value_of,
)
from quarterdeck_protocol.contract import RemoteTool
from quarterdeck_protocol.names import RemoteToolRef
from quarterdeck_protocol.offers import Listing, Offered
from quarterdeck_protocol.tools import ToolDescriptor

JSON = json_values(max_leaves=20)


def tool(definition: bytes) -> Document:
    return tool_document(RemoteTool(RemoteToolRef("s", "t"), ToolDescriptor("s__t", "", {}, definition)))


def reordered(value: object) -> object:
    if isinstance(value, dict):
        return {key: reordered(member) for key, member in reversed(value.items())}
    return [reordered(member) for member in value] if isinstance(value, list) else value


def test_a_tool_is_kept_as_its_server_wrote_it() -> None:
    """A user would approve another text than the one that the server sent."""
    body = b'{ "name": "t", "x-unknown": [1, 2] }'
    document = tool(body)
    assert (document.key, document.body) == (ItemKey(Subject.TOOL, "t"), body)
    assert len(document.hash) == 64


@given(JSON)
def test_a_hash_is_that_of_the_value_however_it_is_spelt(value: object) -> None:
    """A server that builds its objects in another order at every start would be held at every start."""
    tight, loose = json.dumps(value).encode(), json.dumps(reordered(value), indent=3, ensure_ascii=False).encode()
    assert hash_of(tight) == hash_of(loose)


@given(JSON, JSON)
def test_two_values_share_a_hash_only_when_they_are_one(one: object, other: object) -> None:
    """A changed tool would pass for the approved one."""
    spelt = [json.dumps(value, sort_keys=True) for value in (one, other)]
    assert (hash_of(spelt[0].encode()) == hash_of(spelt[1].encode())) == (spelt[0] == spelt[1])


@pytest.mark.parametrize(
    "member",
    ["title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta", "execution", "whatever"],
)
def test_every_member_of_a_tool_counts(member: str) -> None:
    """A server could change what a model reads in a member that nobody looks at."""
    assert tool(b'{"name":"t"}').hash != tool(b'{"name":"t","%s":{"a":1}}' % member.encode()).hash


@given(st.binary(max_size=64))
def test_whatever_a_server_sends_has_a_hash(body: bytes) -> None:
    """One broken definition would end the supervisor."""
    assert len(hash_of(body)) == 64


@pytest.mark.parametrize(
    "body", [b"[" * 100_000 + b"]" * 100_000, b'"\\ud800"', b"1e999", b"9" * 5000, b"NaN", b"", b"\xff"]
)
def test_what_no_reader_can_read_is_hashed_by_its_bytes(body: bytes) -> None:
    """Such a definition would have no hash, or the one of another."""
    assert hash_of(body) == hash_of(bytes(body))
    assert hash_of(body) != hash_of(body + b" x")


def test_no_instructions_are_a_form_of_their_own() -> None:
    """A server that begins to tell models something would not be noticed."""
    silent, told = instructions_document(""), instructions_document("Always call me first.")
    assert silent.key == told.key == ItemKey(Subject.INSTRUCTIONS)
    assert silent.hash != told.hash
    assert value_of(told.body) == "Always call me first."


def test_half_a_character_in_instructions_is_kept_as_an_escape() -> None:
    """A server's broken text would end the supervisor."""
    assert value_of(instructions_document("a\ud800b").body) == "a\\ud800b"


def offered(listing: Listing, definition: bytes) -> Document:
    return offered_document(Offered("s", listing, "k", definition, "k"))


@pytest.mark.parametrize("member", ["name", "title", "description", "arguments", "uri", "mimeType", "icons", "_meta"])
@pytest.mark.parametrize("listing", [Listing.PROMPTS, Listing.RESOURCES, Listing.TEMPLATES])
def test_every_member_of_what_else_is_listed_counts(listing: Listing, member: str) -> None:
    """A server could change what a model reads in a prompt's arguments, and nobody would be asked."""
    assert offered(listing, b'{"x":1}').hash != offered(listing, b'{"x":1,"%s":"a"}' % member.encode()).hash


def test_what_a_resource_says_of_its_contents_does_not_count() -> None:
    """Each note that somebody writes would have to be approved."""
    plain = b'{"uri":"a:b","annotations":{"audience":["user"]}}'
    sized = b'{"uri":"a:b","size":17,"annotations":{"audience":["user"],"lastModified":"2026-01-02"}}'
    one, other = offered(Listing.RESOURCES, plain), offered(Listing.RESOURCES, sized)
    assert one.hash == other.hash == hash_of(other.body)
    assert offered(Listing.PROMPTS, b'{"name":"k","size":1}').hash != offered(Listing.PROMPTS, b'{"name":"k"}').hash
    assert offered(Listing.RESOURCES, b'["size"]').body == b'["size"]'


def test_how_a_server_tells_of_changes_is_no_capability_and_what_it_has_is() -> None:
    """A server that is spoken to in another era would be held; or one that begins to offer prompts would not."""
    older = capabilities_document(b'{"prompts":{"listChanged":true},"resources":{"subscribe":true}}')
    newer = capabilities_document(b'{"resources":{},"prompts":{"listChanged":false}}')
    assert (older.key, older.hash) == (ItemKey(Subject.CAPABILITIES), newer.hash)
    assert capabilities_document(b'{"resources":{},"prompts":{},"completions":{}}').hash != newer.hash
    assert capabilities_document(b'{"resources":{"x":1},"prompts":{}}').hash != newer.hash
    assert capabilities_document(b"[1]").hash == capabilities_document(b"{}").hash


def test_capabilities_wait_for_the_lists_that_they_promise() -> None:
    """What was slow at the first sight would count as added later."""
    prompts = (Offered("s", Listing.PROMPTS, "p", b'{"name":"p"}', "p"),)
    partly = ServerLists(offers={Listing.PROMPTS: prompts}, is_whole=False)
    wholly = ServerLists(offers={Listing.PROMPTS: prompts})
    assert [each.key.subject for each in documents_of(partly)] == ["instructions", "prompt"]
    assert [each.key.subject for each in documents_of(wholly)] == ["instructions", "capabilities", "prompt"]
    assert partly.unknown == {Subject.CAPABILITIES, Subject.RESOURCE, Subject.TEMPLATE}
    assert not partly.is_as(wholly)
    assert wholly.is_as(ServerLists(offers={Listing.PROMPTS: prompts}))
    assert not wholly.is_as(ServerLists(offers={Listing.PROMPTS: (*prompts,)}))


def test_documents_are_kept_that_an_event_names_and_no_others() -> None:
    """The ledger would grow by every list, or miss a text that somebody approved."""
    documents = [tool_document(told_tool("fs", name, "text")) for name in "abcdef"]
    about = {"scope": "s", "server": "fs"}
    events = [
        Seen(**about, subject=Subject.TOOL, name="a", hash=documents[0].hash),
        Approved(**about, subject=Subject.TOOL, name="b", hash=documents[1].hash, by=Authority.OPEN),
        Scanned(**about, hash=documents[2].hash, version=1, findings=()),
        Enrolled(**about, key="bk", tool="d", definition=documents[3].hash),
        Gone(**about, subject=Subject.TOOL, name="e"),
        Seen(**about, subject=Subject.INSTRUCTIONS, hash="of something else"),
    ]
    kept = bodies_of(documents, events)
    assert kept == {each.hash: each.body for each in documents[:4]}
    assert INSTRUCTIONS not in kept
