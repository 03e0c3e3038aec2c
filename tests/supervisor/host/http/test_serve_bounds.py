"""What clients over HTTP may ask beside tools, and who may answer what is asked: as bounded as calls."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from support.clients.http_clients import connected, listening, token_of
from support.clients.wire_http import ENVELOPE, META, call, wired
from support.tools.offer_fleet import OfferFleet, OfferServer
from support.tools.tool_boxes import LiveBox, hold
from support.waiting import eventually_async

from quarterdeck.host.http import serve
from quarterdeck.route.router import Router
from quarterdeck_protocol.offers import LogLine
from quarterdeck_protocol.questions import Question

pytestmark = pytest.mark.process

MIB = 1024 * 1024
OWNER = "t" * 40
FORM = Question("a", "elicitation/create", b'{"message":"?","requestedSchema":{"type":"object","properties":{}}}')


def code_of(answer: dict[str, Any]) -> str:
    code: str = answer["error"]["data"]["quarterdeck/fault"]["code"]
    return code


async def test_a_list_that_a_client_does_not_read_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five thousand definitions, asked for again and again, would fill our memory."""
    # More than the kernel takes off us for a client that does not read.
    monkeypatch.setattr(serve, "MAX_HELD_EACH", 20 * MIB)
    server = OfferServer("a", resources=tuple(f"x:{number}/{'y' * 7_000}" for number in range(2_000)))
    async with listening(LiveBox(), offers=Router(OfferFleet(server))) as url, wired(url) as wire, wired(url) as silent:
        await wire.greet()
        silent.headers |= wire.headers
        listing = {"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {}}
        silent.writer.write(silent.request(listing))
        await eventually_async(lambda: silent.reader._buffer)  # type: ignore[attr-defined]
        assert code_of((await wire.ask({**listing, "id": 2})).answer) == "busy"
        assert len((await silent.read()).messages[-1]["result"]["resources"]) == 2_000


async def test_sessions_that_there_are_not_give_a_client_no_bounds_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One token would be as many clients as it likes, and shut the others out by their number."""
    monkeypatch.setattr(serve, "MAX_REQUESTS_EACH", 2)
    server = OfferServer("a", resources=("x:1",), is_silent=True)
    params = {"uri": "x:1", "_meta": ENVELOPE}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params}
    async with listening(LiveBox(), offers=Router(OfferFleet(server))) as url, AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(wired(url)) for _ in range(3)]
        for wire in wires:
            await wire.introduce()
            wire.headers |= {"Mcp-Method": "resources/read", "Mcp-Name": "x:1"}
        for number, wire in enumerate(wires):
            wire.writer.write(wire.request(asked, Mcp_Session_Id=f"made-up-{number}"))
            if number < 2:
                await eventually_async(lambda count=number + 1: len(server.asked) == count)  # type: ignore[misc]
        assert (await wires[2].read()).status == 429
        assert {each.client.key for each in server.asked} == {""}


async def test_nobody_answers_what_another_session_or_another_client_was_asked(tmp_path: Path) -> None:
    """Whoever guesses the number of a question would answer it in the name of the user who was asked."""
    tokens = tmp_path / "tokens.json"
    server = OfferServer("a", prompts=("p",), question=FORM)
    statuses: set[int] = set()

    async def forge(url: str, token: str, session: str | None = None) -> None:
        async with wired(url) as stranger:
            stranger.headers["Authorization"] = f"Bearer {token}"
            if session is None:
                await stranger.greet()
            else:
                stranger.headers["Mcp-Session-Id"] = session
            accepted = {"action": "accept", "content": {}}
            for number in range(100):
                for id_ in (f"quarterdeck-{number}", number):
                    forged = await stranger.ask({"jsonrpc": "2.0", "id": id_, "result": accepted})
                    statuses.add(forged.status)

    async with listening(LiveBox(), offers=Router(OfferFleet(server)), token=OWNER, tokens=tokens) as url:
        theirs = token_of(tokens)

        async def elicit(context: Any, _: Any) -> types.ElicitResult:
            await forge(url, OWNER)
            await forge(url, theirs)
            session = server.asked[-1].client.key.partition("/")[2]
            await forge(url, theirs, session)
            return types.ElicitResult(action="decline")

        async with connected(url, "legacy", OWNER, elicitation_callback=elicit) as client:
            with pytest.raises(Exception, match="action"):
                await client.get_prompt("a__p")  # the answer is no prompt: it names what the server was answered
    assert statuses == {202, 404}


async def test_programs_that_share_a_token_are_told_their_own_log_lines() -> None:
    """One program would read what servers say of the other's work."""
    box, fleet = LiveBox(), OfferFleet(OfferServer("s"))
    box.graft("s__t", hold)
    headers = {"Mcp_Method": "tools/call", "Mcp_Name": "s__t"}
    told: list[list[Any]] = []
    async with listening(box, offers=Router(fleet)) as url, wired(url) as one, wired(url) as two:
        for number, program in enumerate((one, two)):
            meta = {**ENVELOPE, f"{META}clientInfo": {"name": f"p{number}", "version": "1"}, f"{META}logLevel": "info"}
            discover = {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": meta}}
            program.headers["Mcp-Protocol-Version"] = "2026-07-28"
            await program.ask(discover, Mcp_Method="server/discover")
            program.writer.write(program.request(call(1, meta=meta), **headers))
            await eventually_async(lambda count=number + 1: len(box.begun) == count)  # type: ignore[misc]
        clients = [begun.client for begun in box.begun]
        assert clients[0].key == clients[1].key
        fleet.news(LogLine("s", "info", "", b'"of one"', frozenset({clients[0].address})))
        fleet.news(LogLine("s", "info", "", b'"of both"', frozenset(each.address for each in clients)))
        for begun in box.begun:
            begun.settle({"content": []})
        for program in (one, two):
            messages = (await program.read()).messages
            told.append([each["params"]["data"] for each in messages if each.get("method") == "notifications/message"])
    assert told == [["of one", "of both"], ["of both"]]
