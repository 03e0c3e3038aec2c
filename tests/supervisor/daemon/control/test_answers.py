"""What a running product answers to each request."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.fleet.memory_fleet import call_result
from support.serves.products import ProductEndpoint, product_of
from support.tools.native_decks import DeckMaker

from quarterdeck.config.load.file import BrokenRow
from quarterdeck.config.settings import Settings
from quarterdeck.daemon.control.answers import answer
from quarterdeck.daemon.control.protocol import (
    Call,
    Decide,
    Decided,
    Inspect,
    Listings,
    LogFile,
    LogPath,
    Ps,
    Refusal,
    Refused,
    Restart,
    Result,
    Tools,
    WriteCalls,
    Written,
)
from quarterdeck.host.offers.decks import Decks
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.running_product import Product
from quarterdeck.trust.judge.verdicts import Decision, StaleDecisionError
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.contract import EndpointPhase, RemoteCallResult
from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, ProtocolFault
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.tools import CancelToken, ToolCall, ToolOutcome

BROKEN = Settings(
    broken=(BrokenRow("half", "mcp.json: servers.half: KEY is not set", "unset_variable"),), settle_s=0.05
)
LOST = ProtocolFault(
    FaultKind.TRANSPORT, "it died", code="exited", dossier=Dossier(exit_status=3, stderr_tail="last words")
)


def call(name: str, arguments: bytes = b"{}") -> Call:
    return Call(name, msgspec.Raw(arguments))


async def ask(product: Product, request: Any) -> Any:
    return await answer(product, request)


async def test_every_server_is_listed_in_order_and_broken_rows_last(tmp_path: Path) -> None:
    """A server whose variable is not set would silently be missing."""
    faulted = ProductEndpoint("b", phase=EndpointPhase.FAULTED, fault=LOST)
    with product_of(tmp_path, ProductEndpoint("a", "echo"), faulted, settings=BROKEN) as product:
        listed = await ask(product, Ps())
    assert [(server.id, server.phase, server.tools) for server in listed.servers] == [
        ("a", "ready", 1),
        ("b", "faulted", 0),
        ("half", "faulted", 0),
    ]
    _, lost, half = listed.servers
    assert (lost.fault.code, lost.fault.dossier.exit_status) == ("exited", 3)
    assert (half.transport, half.fault.code) == (None, "unset_variable")
    assert "set the variable" in (half.fault.remedy or "")


async def test_tools_come_with_their_own_definitions_and_with_who_is_absent(tmp_path: Path) -> None:
    """A list would look whole although a server is down."""
    down = ProductEndpoint("down", "echo", phase=EndpointPhase.FAULTED, fault=LOST)
    with product_of(tmp_path, ProductEndpoint("up", "echo", "add"), down, settings=BROKEN) as product:
        listed = await ask(product, Tools())
    assert [(tool.name, tool.server) for tool in listed.tools] == [("up__echo", "up"), ("up__add", "up")]
    assert msgspec.json.decode(listed.tools[0].definition)["x-own"] == [1]
    assert [server.id for server in listed.absent] == ["down", "half"]


async def test_tools_that_write_are_marked_where_their_server_may_only_read(tmp_path: Path) -> None:
    """A model would try a tool that can only fail, and a person not see why."""
    reader, writer = ProductEndpoint("r", "read_file", "write_file"), ProductEndpoint("w", "write_file")
    for endpoint, key in ((reader, "read"), (writer, "write")):
        endpoint.config = StdioServerConfig(
            id=endpoint.config.id,
            command="npx",
            args=("-y", "@modelcontextprotocol/server-filesystem", "/data"),
            sandbox=SandboxPolicy.model_validate({key: ["/data"]}),
        )
    with product_of(tmp_path, reader, writer) as product:
        listed = await ask(product, Tools())
        inspected = [(await ask(product, Inspect(server))).cannot_write for server in ("r", "w")]
    assert [tool.name for tool in listed.tools if tool.cannot_write] == ["r__write_file"]
    assert inspected == [("r__write_file",), ()]


async def test_the_tools_of_one_server_are_listed_alone(tmp_path: Path) -> None:
    """A user of forty servers would look for one among a thousand tools, or see another's fault."""
    down = ProductEndpoint("down", "echo", phase=EndpointPhase.FAULTED, fault=LOST)
    async with with_natives(
        tmp_path, DeckMaker(), ProductEndpoint("up", "echo"), down, ProductEndpoint("more", "x")
    ) as product:
        one, absent, unknown = [await ask(product, Tools(server=name)) for name in ("up", "down", "upp")]
    assert ([tool.name for tool in one.tools], one.absent) == (["up__echo"], ())
    assert (absent.tools, [server.id for server in absent.absent]) == ((), ["down"])
    assert unknown == Refused(Refusal.NO_SUCH_SERVER, "there is no server 'upp': did you mean 'up'?")


async def test_a_server_that_could_not_list_its_tools_is_absent_with_the_reason(tmp_path: Path) -> None:
    """One with too many tools would look like one that has none."""
    huge = ProductEndpoint("huge")
    huge.list_fault = ProtocolFault(FaultKind.PROTOCOL, "more than 5,000 tools", code="too_many_tools")
    with product_of(tmp_path, huge, settings=BROKEN) as product:
        listed = await ask(product, Tools())
        inspected = await ask(product, Inspect("huge"))
    server = next(each for each in listed.absent if each.id == "huge")
    assert (server.phase, server.fault.code, server.fault.message) == (
        "ready",
        "too_many_tools",
        "more than 5,000 tools",
    )
    assert (inspected.server.fault.code, inspected.last_death) == ("too_many_tools", None)


async def test_calls_are_said_to_be_written_once_they_are(tmp_path: Path) -> None:
    """`ledger calls` would read before the calls are there."""
    written: list[str] = []

    async def write() -> None:
        written.append("calls")

    with product_of(tmp_path) as product:
        product.write_calls = write  # type: ignore[misc]
        assert await ask(product, WriteCalls()) == Written()
    assert written == ["calls"]


async def test_arguments_and_result_are_passed_whole(tmp_path: Path) -> None:
    """Scripts would not get what the server said, or the server not what they wrote."""
    heard: list[object] = []

    async def reply(tool: str, arguments: object) -> RemoteCallResult:
        heard.append((tool, arguments))
        return call_result({"content": [], "x-own": None})

    with product_of(tmp_path, ProductEndpoint("up", "echo", answer=reply)) as product:
        result = await ask(product, call("up__echo", b'{"text": 1.0}'))
    assert heard == [("echo", '{"text": 1.0}')]
    assert not result.is_error
    assert bytes(result.body) == b'{"content":[],"x-own":null}'


async def test_a_fault_of_a_call_comes_with_its_delivery(tmp_path: Path) -> None:
    """Nobody would know whether it is safe to try again."""

    async def fail(tool: str, arguments: object) -> RemoteCallResult:
        raise ProtocolFault(FaultKind.TOOL_ERROR, "gone", code="exited", delivery=Delivery.UNKNOWN)

    with product_of(tmp_path, ProductEndpoint("up", "echo", answer=fail)) as product:
        fault = await ask(product, call("up__echo"))
    assert (fault.fault.kind, fault.fault.delivery) == ("tool_error", "unknown")


async def test_a_server_that_is_down_says_why(tmp_path: Path) -> None:
    """`not ready` alone tells nobody what to do."""
    down = ProductEndpoint("down", "echo", phase=EndpointPhase.FAULTED, fault=LOST)
    with product_of(tmp_path, down, settings=BROKEN) as product:
        fault = await ask(product, call("down__echo"))
        unset = await ask(product, call("half__echo"))
    assert fault.fault.kind == "not_connected"
    assert "it died" in fault.fault.message
    assert "quarterdeck logs down" in (fault.fault.remedy or "")
    assert "SERVER" not in (fault.fault.remedy or "")
    assert fault.fault.dossier is not None
    assert unset.fault.code == "unset_variable"
    assert down.calls == 0


async def test_a_call_waits_for_a_server_that_connects(tmp_path: Path) -> None:
    """A script that starts serve and calls at once would have to poll."""
    slow = ProductEndpoint("slow", "echo", phase=EndpointPhase.CONNECTING)
    with product_of(tmp_path, slow, settings=Settings(settle_s=30)) as product:
        asked = asyncio.create_task(ask(product, call("slow__echo")))
        await asyncio.sleep(0)
        slow.phase = EndpointPhase.READY
        product.fleet.tell()  # type: ignore[attr-defined]
        assert isinstance(await asked, Result)


async def test_a_call_does_not_wait_for_other_servers(tmp_path: Path) -> None:
    """One server that hangs while connecting would hold up the calls of all."""
    stuck = ProductEndpoint("stuck", phase=EndpointPhase.CONNECTING)
    with product_of(tmp_path, stuck, ProductEndpoint("up", "echo"), settings=Settings(settle_s=3600)) as product:
        assert isinstance(await ask(product, call("up__echo")), Result)


async def test_a_call_to_a_server_that_goes_on_connecting_is_not_sent(tmp_path: Path) -> None:
    """A command would wait for ever."""
    stuck = ProductEndpoint("stuck", phase=EndpointPhase.CONNECTING)
    with product_of(tmp_path, stuck, settings=BROKEN) as product:
        fault = await ask(product, call("stuck__echo"))
    assert (fault.fault.code, fault.fault.delivery) == ("not_connected", "not_sent")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("echo", "did you mean 'up__echo'?"),
        ("up__ecko", "did you mean 'up__echo'?"),
        ("up__", "the tools of up are up__echo"),
        ("quite-other", "the tools are up__echo"),
        ("", "the tools are up__echo"),
    ],
)
async def test_an_unknown_tool_is_told_from_a_server_that_is_down(tmp_path: Path, name: str, hint: str) -> None:
    """A typing error would look like an outage."""
    with product_of(tmp_path, ProductEndpoint("up", "echo")) as product:
        refused = await ask(product, call(name))
    assert refused.code == "no_such_tool"
    assert hint in refused.message


async def test_an_unknown_server_is_refused(tmp_path: Path) -> None:
    """A typing error would go unnoticed, or look like a server without a sandbox."""
    with product_of(tmp_path, ProductEndpoint("files", "read"), settings=BROKEN) as product:
        for request in (Restart("file"), LogPath("file"), Inspect("file")):
            refused = await ask(product, request)
            assert refused.code == "no_such_server"
            assert "did you mean 'files'?" in refused.message


async def test_a_log_is_found_for_every_server_that_is_named(tmp_path: Path) -> None:
    """`logs` would look elsewhere than the worker writes."""
    with product_of(tmp_path, ProductEndpoint("files"), settings=BROKEN) as product:
        found = await ask(product, LogPath("files"))
        assert found.path == str(product.log_path("files"))
        assert isinstance(await ask(product, LogPath("half")), LogFile)


@asynccontextmanager
async def with_natives(tmp_path: Path, maker: DeckMaker, *endpoints: ProductEndpoint) -> AsyncIterator[Product]:
    with product_of(tmp_path, *endpoints) as product:
        product.decks = decks = Decks(product.router, maker.open)  # type: ignore[misc]
        yield product
        await decks.close()


async def test_native_tools_are_listed_first_as_clients_see_them(tmp_path: Path) -> None:
    """A user could not see what an agent is offered."""
    async with with_natives(tmp_path, DeckMaker(), ProductEndpoint("up", "echo")) as product:
        listed = await ask(product, Tools())
    assert [(tool.name, tool.server) for tool in listed.tools] == [("note", ""), ("up__echo", "up")]
    assert msgspec.json.decode(listed.tools[0].definition) == {
        "name": "note",
        "description": "the tool note",
        "inputSchema": {"type": "object", "properties": {}},
    }


async def test_what_one_command_has_done_the_next_one_finds(tmp_path: Path) -> None:
    """A process that a command started could not be stopped by another."""
    maker = DeckMaker()
    async with with_natives(tmp_path, maker) as product:
        first = await ask(product, call("note", b'{"a": 1}'))
        second = await ask(product, call("note"))
    assert not first.is_error
    assert msgspec.json.decode(second.body) == {"content": [{"type": "text", "text": '[{"a": 1}]'}], "isError": False}
    assert len(maker.opened) == 1


async def test_an_error_that_a_tool_reports_is_a_result(tmp_path: Path) -> None:
    """A tool's own error would look like a broken server, or like success."""

    async def fail(tool: str, arguments: object) -> RemoteCallResult:
        return call_result({"content": [], "isError": True})

    async def fail_here(call: ToolCall, _: CancelToken) -> ToolOutcome:
        return ToolOutcome(call.id, "no such file", is_error=True)

    maker = DeckMaker(prepare=lambda _: product.router.native("read", fail_here))
    async with with_natives(tmp_path, maker, ProductEndpoint("up", "echo", answer=fail)) as product:
        failed = [await ask(product, call(name)) for name in ("up__echo", "read")]
    assert [each.is_error for each in failed] == [True, True]


async def test_an_unknown_native_name_is_told_from_an_error(tmp_path: Path) -> None:
    """A typing error would look like a tool's own failure."""
    async with with_natives(tmp_path, DeckMaker(), ProductEndpoint("up", "echo")) as product:
        refused = await ask(product, call("noet"))
        of_a_server = await ask(product, call("up__ecko"))
    assert (refused.code, refused.message) == ("no_such_tool", "there is no tool 'noet': did you mean 'note'?")
    assert "did you mean 'up__echo'?" in of_a_server.message


async def test_native_tools_that_cannot_be_had_say_why(tmp_path: Path) -> None:
    """Every native call would look like a typing error once the workspace is gone."""

    def fail(_: object) -> None:
        raise OSError("the workspace is gone")

    async with with_natives(tmp_path, DeckMaker(prepare=fail), ProductEndpoint("up", "echo")) as product:
        listed = await ask(product, Tools())
        result = await ask(product, call("read"))
    assert [tool.name for tool in listed.tools] == ["up__echo"]
    assert result.is_error
    assert b"the workspace is gone" in bytes(result.body)


class Judged:
    """Takes decisions in place of the ledger, as a test says."""

    def __init__(self, product: Product, error: Exception | None = None) -> None:
        self.decisions: list[Decision] = []
        self._error = error
        product.decide = self.decide  # type: ignore[method-assign]

    async def decide(self, decisions: Sequence[Decision]) -> None:
        """See `Product`."""
        if self._error is not None:
            raise self._error
        self.decisions += decisions


async def test_a_persons_decisions_are_taken_as_they_were_made(tmp_path: Path) -> None:
    """What is approved would not be what was looked at."""
    decisions = (
        Decision("/product.json", "up", ItemKey(Subject.TOOL, "echo"), "ab"),
        Decision("", "up", ItemKey(Subject.LAUNCH), "c", b"{}"),
    )
    with product_of(tmp_path, ProductEndpoint("up", "echo")) as product:
        judged = Judged(product)
        assert await ask(product, Decide(msgspec.Raw(msgspec.json.encode(decisions)))) == Decided()
    assert judged.decisions == [*decisions]


@pytest.mark.parametrize(
    ("subject", "error", "code"),
    [
        ("toool", None, "bad_request"),
        ("tool", StaleDecisionError("look again"), "stale"),
        ("tool", LedgerWriteError("no space left"), "not_recorded"),
    ],
)
async def test_decisions_that_are_not_recorded_are_refused(
    tmp_path: Path, subject: str, error: Exception | None, code: str
) -> None:
    """A user would believe that a tool is approved, or blocked, and it is not."""
    with product_of(tmp_path, ProductEndpoint("up", "echo")) as product:
        judged = Judged(product, error)
        decision = {"scope": "", "server": "up", "key": [subject, "echo"], "hash": "ab"}
        refused = await ask(product, Decide(msgspec.Raw(msgspec.json.encode([decision]))))
    assert refused.code == code
    assert code in set(Refusal)
    assert refused.message
    assert judged.decisions == []


async def test_listings_are_what_servers_say_whether_it_is_trusted_or_not(tmp_path: Path) -> None:
    """A lock would be held against what was filtered already, and never drift."""
    down = ProductEndpoint("down", "echo", phase=EndpointPhase.FAULTED, fault=LOST)
    early = ProductEndpoint("early")
    early.has_listed = False
    with product_of(tmp_path, ProductEndpoint("up", "echo", "add"), down, early, settings=BROKEN) as product:
        answered = await ask(product, Listings())
    assert [(each.server, each.is_ready, len(each.definitions)) for each in answered.listings] == [
        ("up", True, 2),
        ("down", False, 0),
        ("early", False, 0),
        ("half", False, 0),
    ]
    assert msgspec.json.decode(answered.listings[0].definitions[0])["x-own"] == [1]


async def test_a_tool_can_be_called_by_the_name_that_clients_see(tmp_path: Path) -> None:
    """A user could not try what an agent calls."""
    long = "a.tool." + "x" * 80
    with product_of(tmp_path, ProductEndpoint("up", long, "echo")) as product:
        listed = await ask(product, Tools())
        [aliased] = [tool for tool in listed.tools if tool.alias]
        assert aliased.name == f"up__{long}"
        result = await ask(product, call(aliased.alias))
        refused = await ask(product, call(f"{aliased.alias}x"))
    assert long in bytes(result.body).decode()
    assert isinstance(refused, Refused)


async def test_without_a_budget_no_tool_has_another_name(tmp_path: Path) -> None:
    """A client without limits would be shown short names."""
    with product_of(tmp_path, ProductEndpoint("up", "x" * 90), settings=Settings(names=None)) as product:
        listed = await ask(product, Tools())
    assert [tool.alias for tool in listed.tools] == [""]
