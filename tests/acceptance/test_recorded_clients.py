"""What real clients sent to a server on the SDK, sent to the same server through us: each is answered the same JSON.

The SDK is the oracle: `conformance.py` is written with it.  `conversations/` has the recordings; how one is made is
in `support/clients/conversations.py`.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from support.clients.conversations import Conversation, Heard, conversations, recorded, replay
from support.clients.raw_client import RawStdioClient
from support.processes.commands import DEADLINE_S, popen_forked
from support.processes.leftovers import assert_gone
from support.processes.programs import SERVERS, server_argv
from support.serves.daemons import daemon_status

from quarterdeck.daemon.client import ask_daemon
from quarterdeck.daemon.messages import Order
from quarterdeck.daemon.place import NoDaemonError, daemon_dir

# From its first question on, a server has a process for each session: those that it asks come last.
RECORDED: Final = sorted(conversations(), key=lambda one: bool(recorded(one).asked))

SDKS: Final = frozenset({"@modelcontextprotocol/client", "@modelcontextprotocol/sdk", "mcp"})
"""What the other clients are built on, or speak like: they are replayed by night."""

OUR_OWN: Final = frozenset(
    {
        "serverInfo",  # who we are, in both eras
        "io.modelcontextprotocol/serverInfo",
        "instructions",  # the server's, under its name
        "nextCursor",  # lists are merged, so that their pages are others
        "ttlMs",  # lists change when a server comes or goes
        "requestState",  # ours comes with every question
        "quarterdeck/server",  # who asks
        "quarterdeck/fault",
    }
)
"""Keys of ours, or with values of ours."""

LISTS: Final = ("tools", "resources", "resourceTemplates", "prompts")

ABSENT: Final = ("no_such_tool", "prompt none", "prompt 'none'")
"""What clients asked for and no server has: refused by us in our words, and as a tool's error."""


@pytest.fixture(scope="module", autouse=True)
def one_daemon(own_directories: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("QUARTERDECK_OWN", raising=False)
        yield
        if (found := daemon_status()) is not None:
            with suppress(NoDaemonError):
                ask_daemon(daemon_dir(), Order.END)
            assert_gone([found.pid], DEADLINE_S)


def server(conversation: Conversation) -> list[str]:
    return server_argv("conformance", *(["--legacy"] if conversation.era == "2025-11-25" else []))


def plain(value: Any) -> Any:
    """A value without what is ours by design (a question names who asks); numbers as JSON has them: 1 is 1.0."""
    if isinstance(value, dict):
        kept = {key: plain(each) for key, each in value.items() if key not in OUR_OWN}
        if isinstance(question := kept.get("message"), str):
            kept["message"] = question.rpartition(" asks: ")[2]
        return {key: each for key, each in kept.items() if each not in ({}, None) or key not in ("_meta", "params")}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def answer(body: dict[str, Any]) -> Any:
    if any(word in json.dumps(body) for word in ABSENT):
        return "refused"
    return plain(body)


def told(heard: Heard) -> list[str]:
    """Notifications to compare: we name the server in `logger`, and announce it once it is there."""
    notes = [plain(each) for each in heard.told if not each["method"].endswith("/list_changed")]
    for note in notes:
        if "logger" in note["params"]:
            note["params"]["logger"] = note["params"]["logger"].rpartition("/")[2]
    return sorted(json.dumps(note, sort_keys=True) for note in notes)


def test_at_least_twelve_clients_of_both_eras_are_recorded() -> None:
    """A protocol that was only ever tried with its own makers' client fits no other."""
    assert len({conversation.client for conversation in RECORDED}) >= 12
    assert {conversation.era for conversation in RECORDED} == {"2025-11-25", "2026-07-28"}


@pytest.mark.parametrize(
    "conversation",
    [pytest.param(one, marks=[] if one.client in SDKS else pytest.mark.nightly) for one in RECORDED],
    ids=lambda one: f"{one.client} {one.version} {one.era}",
)
def test_a_recorded_client_is_answered_what_the_sdk_answered(conversation: Conversation) -> None:
    """A client that works with a server would fail, or show something else, once the server is confined."""
    expected = recorded(conversation)
    words = ("run", "--read", str(SERVERS), "--", *server(conversation))
    with RawStdioClient(words, deadline_s=DEADLINE_S, popen=popen_forked) as client:
        heard = replay(conversation, client)
    for name, body in expected.answers.items():
        ours, theirs = answer(heard.answers[name]), answer(body)
        if kind := next((kind for kind in LISTS if kind in body.get("result", {})), None):
            missing = [each for each in theirs["result"].pop(kind) if each not in ours["result"][kind]]
            assert not missing, name
            del ours["result"][kind]
        assert ours == theirs, name
    assert plain(heard.asked) == plain(expected.asked)
    assert told(heard) == told(expected)


@pytest.mark.nightly
@pytest.mark.parametrize("conversation", RECORDED, ids=lambda one: f"{one.client} {one.version} {one.era}")
def test_the_installed_sdk_answers_as_when_it_was_recorded(conversation: Conversation) -> None:
    """The oracle is the SDK that users have; a recording that it no longer answers so has to be made again."""
    with RawStdioClient(server(conversation), env=dict(os.environ), deadline_s=DEADLINE_S) as client:
        assert replay(conversation, client).answers == recorded(conversation).answers
