"""The product in a program of one's own, with real servers: on its event loop, and from threads without one."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S
from support.processes.leftovers import no_leftovers
from support.processes.programs import SERVERS, server_argv
from support.processes.running import run

from quarterdeck import ProtocolFault, Quarterdeck, SyncQuarterdeck
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.faults import Delivery, FaultKind
from quarterdeck_protocol.policy import SandboxPolicy

IN_A_GENERATOR = """
import sys
from quarterdeck import SyncQuarterdeck

def results():
    with SyncQuarterdeck(sys.argv[1]) as deck:
        yield deck.call("echo__echo", {"text": "hello"}).text

kept = results()
print(next(kept))
"""


@pytest.fixture(scope="module")
def config(own_directories: Path) -> Path:
    return write_config(own_directories / "mcp.json", echo=row("echo"), gone=row("hostile", "exits_at_once"))


@pytest.fixture(scope="module")
def shared(config: Path) -> Iterator[SyncQuarterdeck]:
    """One deck for the tests that only call it."""
    with no_leftovers(DEADLINE_S), SyncQuarterdeck(config) as deck:
        yield deck


async def test_a_program_calls_a_tool_in_two_lines(config: Path) -> None:
    """An embedding program would have to know fleet, bridge and host to make one call."""
    with no_leftovers(DEADLINE_S):
        async with Quarterdeck(config) as deck:
            assert "echo__echo" in [tool.name for tool in deck.tools()]
            result = await deck.call("echo__echo", {"text": "hello"})
            assert (result.text, result.is_error) == ("hello", False)
            assert (await deck.call("echo__add", {"a": 2, "b": 3})).structured_content == {"sum": 5}
            assert deck.servers()["echo"].phase == "ready"
        with pytest.raises(ProtocolFault, match="not running") as refused:
            deck.tools()
        assert refused.value.code == "closed"
        with pytest.raises(RuntimeError, match="make another one"):
            await deck.__aenter__()


async def test_servers_can_be_described_in_code_beside_a_file(config: Path) -> None:
    """A program with a server of its own would have to write a file for it."""
    command, *args = server_argv("echo")
    own = StdioServerConfig(id="own", command=command, args=tuple(args), sandbox=SandboxPolicy(read=(str(SERVERS),)))
    with no_leftovers(DEADLINE_S):
        async with Quarterdeck(config, servers=[own]) as deck:
            assert list(deck.servers()) == ["own", "echo", "gone"]
            assert (await deck.call("own__echo", {"text": "mine"})).text == "mine"


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "code", "delivery"),
    [
        ("echo__ecko", {}, FaultKind.TOOL_ERROR, "unknown_tool", Delivery.NOT_SENT),
        ("gone__echo", {}, FaultKind.NOT_CONNECTED, "exited_at_handshake", Delivery.NOT_SENT),
        ("echo__fail", {"code": -32000, "message": "no"}, FaultKind.TOOL_ERROR, "reply_error", Delivery.ANSWERED),
    ],
)
def test_a_fault_is_an_exception_with_all_that_is_known(
    shared: SyncQuarterdeck, name: str, arguments: dict[str, object], kind: FaultKind, code: str, delivery: Delivery
) -> None:
    """A program could not tell what may be repeated, or show its user what to do."""
    with pytest.raises(ProtocolFault) as raised:
        shared.call(name, arguments)
    fault = raised.value
    assert (fault.kind, fault.code, fault.delivery) == (kind, code, delivery)
    assert fault.remedy
    assert (fault.dossier is not None) == (code == "exited_at_handshake")


def test_threads_share_one_deck(shared: SyncQuarterdeck) -> None:
    """Answers would go to the wrong thread, or one call wait for the other."""
    with ThreadPoolExecutor(8) as threads:
        said = list(threads.map(lambda n: shared.call("echo__add", {"a": n, "b": 1}).structured_content, range(32)))
    assert said == [{"sum": number + 1} for number in range(32)]


def test_closing_ends_the_calls_of_other_threads_and_can_be_repeated(config: Path) -> None:
    """A thread would wait for ever for a server that is gone."""
    with no_leftovers(DEADLINE_S):
        deck = SyncQuarterdeck(config).__enter__()
        ended: list[ProtocolFault] = []

        def hang() -> None:
            with pytest.raises(ProtocolFault) as raised:
                deck.call("echo__hang")
            ended.append(raised.value)

        thread = threading.Thread(target=hang)
        thread.start()
        deck.call("echo__echo", {"text": "the other call is under way or comes too late"})
        deck.close()
        thread.join(DEADLINE_S)
        assert [fault.delivery for fault in ended] in ([Delivery.UNKNOWN], [Delivery.NOT_SENT])
        deck.close()
        with pytest.raises(ProtocolFault, match="not running"):
            deck.tools()


async def test_the_twin_refuses_to_wait_for_itself(shared: SyncQuarterdeck) -> None:
    """A call from its own loop would hang the whole program."""
    assert shared._thread is not None

    async def call() -> object:
        return shared.tools()

    asked = asyncio.run_coroutine_threadsafe(call(), shared._thread._loop)
    with pytest.raises(RuntimeError, match="wait for itself"):
        await asyncio.wrap_future(asked)


def test_a_program_that_ends_inside_the_block_ends_in_order(config: Path) -> None:
    """A script would hang at its end, or leave servers and files behind."""
    with no_leftovers(DEADLINE_S):
        ended = run(sys.executable, "-W", "error", "-c", IN_A_GENERATOR, config)
        # In whichever words: the first start of a state directory says it for all.
        partial = ("is confined less than its policy wants", "Sandbox is partial here")
        said = [line for line in ended.stderr.splitlines() if not any(words in line for words in partial)]
        assert (ended.returncode, ended.stdout, said) == (0, "hello\n", [])
