"""The early answer to `initialize`: the same as the session's own, given once, and only when nothing is unusual."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from support.boxes import LiveBox
from support.stdio_pipes import served

from quarterdeck.config.paths import state_dir
from quarterdeck.host.greeter import (
    HANDSHAKE_VERSIONS,
    MAX_NOTICE_CHARS,
    NOTICE_PLACE,
    EarlyGreeter,
    Head,
    answer_to,
    notice_path,
    read_notice,
)
from quarterdeck.host.provider import ProviderHostInfo, create_provider_host
from quarterdeck.identity import CLIENT_NAME, CLIENT_VERSION

INFO = {"name": "raw", "version": "1"}


def initialize(**changes: object) -> bytes:
    """An ordinary first line, with members of the message replaced."""
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": INFO}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params, **changes}
    return json.dumps(message).encode() + b"\n"


@pytest.fixture
def pipes() -> Iterator[tuple[int, int, int, int]]:
    """Two pipes: what the greeter reads, what feeds it; what the client reads, what the greeter writes."""
    greeter_in, client_out = os.pipe()
    client_in, greeter_out = os.pipe()
    yield greeter_in, client_out, client_in, greeter_out
    for fd in (greeter_in, client_in, greeter_out):
        os.close(fd)
    try:
        os.close(client_out)
    except OSError:
        pass  # a test closed it to be a client that leaves


def test_the_revisions_are_the_sdks() -> None:
    """A client of a revision that only the SDK knows would be told another one."""
    assert tuple(HANDSHAKE_VERSIONS) == tuple(HANDSHAKE_PROTOCOL_VERSIONS)


@pytest.mark.anyio
@pytest.mark.parametrize("version", [*HANDSHAKE_VERSIONS, "2026-07-28", "1999-01-01"])
async def test_the_answer_is_what_the_session_would_have_said(version: str) -> None:
    """A client would be promised what the session then does not keep."""
    params = {"protocolVersion": version, "capabilities": {"roots": {}}, "clientInfo": INFO}
    _, early = answer_to(initialize(params=params).rstrip())
    host = create_provider_host(LiveBox(), ProviderHostInfo(CLIENT_NAME, CLIENT_VERSION))
    async with served(host) as client:
        own = await client.ask(1, "initialize", **params)
    assert json.loads(early) == own


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"garbage",
        b"[" * 100_000,
        initialize(method="server/discover"),
        initialize(id=None),
        initialize(id=True),
        initialize(id=1.5),
        initialize(jsonrpc="1.0"),
        initialize(params={}),
        initialize(params={"protocolVersion": 5, "capabilities": {}, "clientInfo": INFO}),
        initialize(params={"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x"}}),
        initialize(result={}),
    ],
)
def test_what_is_unusual_is_left_to_the_session(line: bytes) -> None:
    """A wrong message would get a right answer."""
    assert answer_to(line) == (None, b"")


def test_the_first_line_is_answered_at_once_and_kept(pipes: tuple[int, int, int, int]) -> None:
    """The session would never hear of a client that was greeted without it."""
    greeter_in, client_out, client_in, greeter_out = pipes
    greeter = EarlyGreeter(greeter_in, greeter_out)
    greeter.start()
    os.write(client_out, initialize(id="a"))
    answer = json.loads(os.read(client_in, 4096))
    assert answer["id"] == "a"
    assert greeter.finish() == Head(initialize(id="a"), "a")


def test_a_client_that_says_nothing_is_given_over_as_it_is(pipes: tuple[int, int, int, int]) -> None:
    """A slow client would hold up the start."""
    greeter = EarlyGreeter(pipes[0], pipes[3])
    greeter.start()
    assert greeter.finish() == Head()


def test_half_a_line_is_given_over_unanswered(pipes: tuple[int, int, int, int]) -> None:
    """Half of a client's first message would be lost."""
    greeter = EarlyGreeter(pipes[0], pipes[3])
    os.write(pipes[1], b'{"jsonrpc"')
    os.close(pipes[1])
    greeter.start()
    greeter._thread.join()
    assert greeter.finish() == Head(b'{"jsonrpc"', None)


@pytest.mark.anyio
async def test_the_session_goes_on_where_the_greeter_stopped() -> None:
    """A client that was greeted early would be greeted twice, or not be served."""
    async with served(create_provider_host(LiveBox()), head=Head(initialize(id=1), 1)) as client:
        await client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        answer = await client.ask(2, "tools/list")
    assert answer["id"] == 2
    assert answer["result"] == {"tools": []}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"QUARTERDECK_STATE_DIR": "/elsewhere"},
        {"QUARTERDECK_STATE_DIR": "~/mine"},
        {"QUARTERDECK_STATE_DIR": ""},
        {"XDG_STATE_HOME": "/xdg"},
        {"XDG_STATE_HOME": ""},
    ],
    ids=str,
)
def test_the_notice_is_looked_for_in_the_state_directory(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    """A client would be told of another deck's tools, or of none."""
    for name in ("QUARTERDECK_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert notice_path() == str(state_dir().joinpath(*NOTICE_PLACE))


@pytest.mark.parametrize("arguments", [["serve", "--state-dir", "/s"], ["--state-dir=/s", "serve"]])
def test_the_notice_of_a_state_directory_that_is_named_is_read(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """A client of one deck would be told what another one holds."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", "/other")
    assert notice_path(arguments) == str(Path("/s").joinpath(*NOTICE_PLACE))


def test_a_notice_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    """A damaged file would keep every client from being greeted."""
    file = tmp_path / "notice"
    assert read_notice(str(file), "me") == ""
    file.write_text("me\n1 tool is held – look")
    assert read_notice(str(file), "me") == "1 tool is held – look"
    file.write_text("me\n" + "x" * (MAX_NOTICE_CHARS + 1))
    assert read_notice(str(file), "me") == ""
    file.write_bytes(b"me\n\xff\xfe")
    assert read_notice(str(file), "me") == ""
    assert read_notice(str(tmp_path), "me") == ""
    assert read_notice("/a\0b", "me") == ""


def test_what_is_held_is_told_in_the_answer() -> None:
    """A model would not know why a tool is missing."""
    _, plain = answer_to(initialize().rstrip())
    _, told = answer_to(initialize().rstrip(), "1 tool is held.")
    assert "instructions" not in json.loads(plain)["result"]
    assert json.loads(told)["result"]["instructions"] == "1 tool is held."
