"""What can be approved of a server, and the hash that an approval names."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.ledger.book import ItemKey
from quarterdeck.ledger.events import Subject
from quarterdeck.trust.items import (
    Document,
    hash_of,
    instructions_document,
    launch_document,
    tool_document,
    value_of,
)
from quarterdeck_protocol.configs import SseServerConfig, StdioServerConfig, StreamableHttpServerConfig, TrustMode
from quarterdeck_protocol.contract import RemoteTool
from quarterdeck_protocol.refs import RemoteToolRef
from quarterdeck_protocol.tools import ToolDescriptor

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


def stdio(**fields: Any) -> Document:
    """The launch of a process as the program itself would configure it."""
    return launch_document(StdioServerConfig(**{"id": "s", "command": "npx", **fields}))


def written(row: Mapping[str, object]) -> Any:
    """What is kept of the launch of a row in a file."""
    config = StdioServerConfig(id="s", command="npx") if "command" in row else SseServerConfig(id="s", url="http://h/")
    return value_of(launch_document(config, row).body)


def tool(definition: bytes) -> Document:
    return tool_document(RemoteTool(RemoteToolRef("s", "t"), ToolDescriptor("s__t", "", {}, definition)))


def reordered(value: object) -> object:
    """The same value with the members of every object the other way round."""
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


@pytest.mark.parametrize(
    "changed",
    [
        {"command": "node"},
        {"args": ["-y", "evil"]},
        {"cwd": "/elsewhere"},
        {"env": {"TOKEN": "x", "NODE_OPTIONS": "x"}},
        {"inherit_env": ["HOME"]},
        {"sandbox": {"preset": "trusted"}},
        {"envFile": "other.env"},
    ],
)
def test_every_way_to_run_something_else_is_another_launch(changed: dict[str, object]) -> None:
    """A changed configuration file would run what nobody approved."""
    row: dict[str, object] = {"command": "npx", "args": ["-y", "good"], "env": {"TOKEN": "x"}}
    config = StdioServerConfig(id="s", command="npx")
    assert launch_document(config, row).hash != launch_document(config, row | changed).hash


@pytest.mark.parametrize("changed", [{"url": "https://evil.example/mcp"}, {"headers": {"X-A": "1", "X-B": "1"}}])
def test_every_way_to_reach_something_else_is_another_launch(changed: dict[str, object]) -> None:
    """A changed configuration file would send a user's data elsewhere."""
    row: dict[str, object] = {"url": "https://good.example/mcp", "headers": {"X-A": "1"}}
    config = SseServerConfig(id="s", url="https://good.example/mcp")
    assert launch_document(config, row).hash != launch_document(config, row | changed).hash


def test_another_transport_is_another_launch() -> None:
    """The same URL, spoken to in another way, would pass unseen."""
    kinds = (SseServerConfig, StreamableHttpServerConfig)
    assert len({launch_document(kind(id="s", url="https://h/")).hash for kind in kinds}) == 2


def test_values_of_variables_and_headers_are_nobodys_business() -> None:
    """A secret would lie in the ledger for good."""
    row = {"command": "npx", "env": {"B_TOKEN": "hunter2", "A": "${A}"}}
    assert written(row)["env"] == ["A", "B_TOKEN"]
    assert written({"url": "http://h/", "headers": {"Authorization": "Bearer hunter2"}})["headers"] == ["Authorization"]
    assert stdio(env={"A": "one"}).hash == stdio(env={"A": "two"}).hash


@pytest.mark.parametrize(
    "args",
    [
        ["--api-key", "hunter2"],
        ["--api-key=hunter2"],
        ["--db_password", "hunter2"],
        ["-token=hunter2"],
        ["sk-hunter2hunter2"],
        ["https://user:hunter2@h.example/"],
        ["https://h.example/?a=1&api_key=hunter2&b=2"],
        ["-e", "GITHUB_TOKEN=hunter2"],
        ["--env=API_KEY=hunter2"],
        ["--header", "Authorization: Bearer hunter2hunter2"],
    ],
)
def test_a_literal_secret_among_the_arguments_is_replaced(args: list[str]) -> None:
    """A secret would lie in the ledger for good; and a changed one would not be noticed."""
    kept, changed = (stdio(args=[each.replace("hunter2", word) for each in args]) for word in ("hunter2", "hunter3"))
    assert b"hunter2" not in kept.body
    assert kept.hash != changed.hash


def test_a_reference_to_a_secret_is_shown_as_it_is() -> None:
    """A user who approves a command line would see a riddle in place of the variable's name."""
    row = {"command": "npx", "args": ["--token", "${TOKEN}", "--key=${KEY:-none}", "https://h/?token=${T}"]}
    assert written(row)["args"] == row["args"]
    assert written({"url": "https://h/?api_key=${KEY}"})["url"] == "https://h/?api_key=${KEY}"


def test_arguments_that_are_no_secrets_are_shown_as_they_are() -> None:
    """A user could not tell what would be run."""
    args = ["-y", "@scope/server@1.2.3", "--port", "8080", "/home/me/notes", "https://h/?page=2"]
    assert written({"command": "npx", "args": args})["args"] == args


@pytest.mark.parametrize("piece", ["token", "://a:", "?key", "a=", "--", ":"])
def test_a_strangers_file_cannot_keep_us_busy(piece: str) -> None:
    """A directory that a user merely enters would hang every command."""
    assert len(written({"command": "npx", "args": [piece * 200_000]})["args"]) == 1


@given(st.dictionaries(st.sampled_from(["command", "args", "env", "cwd", "sandbox", "url", "headers", "trust"]), JSON))
def test_whatever_a_row_holds_has_a_launch(row: dict[str, object]) -> None:
    """A row that a loader refuses later would end the supervisor first."""
    for config in (StdioServerConfig(id="s", command="x"), SseServerConfig(id="s", url="http://h/")):
        assert len(launch_document(config, row).hash) == 64


def test_the_trust_that_counts_is_part_of_a_launch_wherever_the_file_says_it() -> None:
    """A row could be opened from the top of its file, and what is held would be offered."""
    config = StdioServerConfig(id="s", command="npx")
    opened = config.model_copy(update={"trust": TrustMode.OPEN})
    assert launch_document(config, {"command": "npx"}).hash != launch_document(opened, {"command": "npx"}).hash
