"""A session in this process: an endpoint like any other, over the worker's own code, without a process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.session import ClientSession
from support.servers.greetings import INITIALIZED, LEGACY, METHOD_NOT_FOUND, Answer, JsonObject
from support.servers.scripted_session import PATIENCE_S, ScriptedServer, scripted_session
from support.waiting import turns

from quarterdeck.fleet import embedded as embedded_module
from quarterdeck.fleet.embedded import EmbeddedSession, MemoryWay, SessionFactory
from quarterdeck.fleet.endpoint import ServerEndpointImpl, create_server_endpoint
from quarterdeck.fleet.workers.requests import ended
from quarterdeck_protocol.configs import RestartPolicy, ServerConfig, StdioServerConfig, StreamableHttpServerConfig
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.offers import Listing, RawRequest

CONFIG = StdioServerConfig(id="in", command="none", max_result_bytes=10_000)
ANSWERS: dict[str, Answer] = {
    "tools/list": {"result": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}, "x-own": 1}]}},
    "tools/call": lambda params: {"result": {"content": [{"type": "text", "text": params["arguments"].get("a", "")}]}},
}


ABLE: JsonObject = {"result": {**INITIALIZED["result"], "capabilities": {"tools": {}, "prompts": {}, "resources": {}}}}
"""A greeting of a server that says it has prompts and resources, too."""


class Stage:
    """An endpoint whose session's server is a script; notes when its session was entered and left."""

    def __init__(self, answers: dict[str, Answer], config: ServerConfig = CONFIG) -> None:
        self.answers = answers
        self.noted: list[tuple[str, asyncio.Task[Any] | None]] = []
        self.server: ScriptedServer | None = None
        self.greeting = INITIALIZED
        self.endpoint: ServerEndpointImpl = create_server_endpoint(config, self.session)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[ClientSession]:
        """The factory: an adopted session."""
        self.noted.append(("entered", asyncio.current_task()))
        try:
            async with scripted_session(self.answers) as (session, self.server):
                session.adopt(types.InitializeResult.model_validate(self.greeting["result"]))
                yield session
        finally:
            self.noted.append(("left", asyncio.current_task()))


@asynccontextmanager
async def stage(answers: dict[str, Answer] | None = None, greeting: JsonObject = INITIALIZED) -> AsyncIterator[Stage]:
    made = Stage(ANSWERS if answers is None else answers)
    made.greeting = greeting
    with anyio.fail_after(PATIENCE_S):
        await made.endpoint.open()
        yield made
        await made.endpoint.close()
    assert [word for word, _ in made.noted] == ["entered", "left"]


async def test_a_session_of_this_process_lists_and_calls_like_any_server() -> None:
    """An embedding program's own server would be missing on the deck."""
    async with stage() as made:
        [tool] = await made.endpoint.list_tools()
        assert tool.descriptor.name == "in__echo"
        assert b'"x-own":1' in (tool.descriptor.definition or b"")
        result = await made.endpoint.invoke("echo", {"a": "ä"})
        assert result.content == ({"type": "text", "text": "ä"},)
        assert result.wire.era == LEGACY


async def test_its_status_says_that_nothing_isolates_it() -> None:
    """A user would believe it confined."""
    async with stage() as made:
        status = made.endpoint.status()
        assert status.phase is EndpointPhase.READY
        assert not status.isolated
        assert status.pid is None
        assert status.worker_pid is None
        assert status.era == LEGACY


async def test_the_session_is_entered_and_left_in_one_task() -> None:
    """The SDK's task groups would break when closed by another task."""
    async with stage() as made:
        pass
    assert len({task for _, task in made.noted}) == 1


async def test_a_call_that_is_given_up_is_told_to_the_server() -> None:
    """The embedding program would work for nobody."""
    async with stage({**ANSWERS, "tools/call": None}) as made:
        calling = asyncio.ensure_future(made.endpoint.invoke("echo"))
        await made.server.until("tools/call")
        calling.cancel()
        await made.server.until("notifications/cancelled")
        with pytest.raises(asyncio.CancelledError):
            await calling


async def test_closing_ends_calls_in_flight() -> None:
    """A caller would wait for a session that is gone."""
    async with stage({**ANSWERS, "tools/call": None}) as made:
        calling = asyncio.ensure_future(made.endpoint.invoke("echo"))
        await made.server.until("tools/call")
        await made.endpoint.close()
        with pytest.raises(ProtocolFault):
            await calling
        assert made.endpoint.phase is EndpointPhase.CLOSED


async def test_the_largest_result_is_bounded_here_too() -> None:
    """A session of this process could fill a client's stream."""
    huge: JsonObject = {"result": {"content": [{"type": "text", "text": "x" * 20_000}]}}
    async with stage({**ANSWERS, "tools/call": huge}) as made:
        with pytest.raises(ProtocolFault) as caught:
            await made.endpoint.invoke("echo")
        assert (caught.value.code, caught.value.delivery) == ("bad_output", Delivery.ANSWERED)
        assert made.endpoint.phase is EndpointPhase.READY


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (CONFIG, FaultKind.SPAWN_FAILED),
        (StreamableHttpServerConfig(id="in", url="http://localhost/mcp"), FaultKind.TRANSPORT),
    ],
)
async def test_a_factory_that_fails_is_a_failed_connect(config: ServerConfig, kind: FaultKind) -> None:
    """A mistake in the embedding program would be a wait without end."""

    @asynccontextmanager
    async def broken() -> AsyncIterator[ClientSession]:
        async with anyio.create_task_group():
            raise ValueError("no such backend")
        yield

    endpoint = create_server_endpoint(config, broken)
    with anyio.fail_after(PATIENCE_S), pytest.raises(ProtocolFault, match="no such backend") as caught:
        await endpoint.open()
    assert (caught.value.kind, caught.value.code, caught.value.dossier) == (kind, "spawn_failed", None)
    await endpoint.close()


async def test_a_factory_that_hangs_can_be_closed() -> None:
    """A session that never comes would hold the whole program."""
    entered = asyncio.Event()

    @asynccontextmanager
    async def hangs() -> AsyncIterator[ClientSession]:
        entered.set()
        await anyio.sleep_forever()
        yield

    endpoint = create_server_endpoint(CONFIG, hangs)
    with anyio.fail_after(PATIENCE_S):
        opening = asyncio.ensure_future(endpoint.open())
        await entered.wait()
        await endpoint.close()
        with pytest.raises(ProtocolFault):
            await opening
    assert endpoint.phase is EndpointPhase.CLOSED


async def test_a_session_that_breaks_by_itself_is_a_lost_server_without_a_dossier() -> None:
    """A lost session would look ready for ever."""
    broken = asyncio.Event()

    @asynccontextmanager
    async def breaks() -> AsyncIterator[ClientSession]:
        async with scripted_session(ANSWERS, LEGACY) as (session, _), anyio.create_task_group() as tasks:

            async def fail() -> None:
                await broken.wait()
                raise ConnectionError("the backend went away")

            tasks.start_soon(fail)
            yield session

    endpoint = create_server_endpoint(CONFIG, breaks)
    with anyio.fail_after(PATIENCE_S):
        await endpoint.open()
        broken.set()
        while endpoint.phase is EndpointPhase.READY:
            await turns(1)
    fault = endpoint.fault
    assert (fault.kind, fault.code, fault.dossier) == (FaultKind.TRANSPORT, "server_lost", None)
    assert "the backend went away" in fault.message
    await endpoint.close()


async def test_a_session_whose_connection_ends_is_a_lost_server() -> None:
    """Every call would fail from then on, and the endpoint look ready."""
    ends: list[Callable[[], Any]] = []

    @asynccontextmanager
    async def quiet_end() -> AsyncIterator[ClientSession]:
        to_session, from_server = anyio.create_memory_object_stream[Any](8)
        from_session, to_server = anyio.create_memory_object_stream[Any](8)
        ends.append(to_session.close)
        async with (
            to_session,
            from_server,
            from_session,
            to_server,
            ClientSession(from_server, from_session) as session,
        ):
            session.adopt(types.InitializeResult.model_validate(INITIALIZED["result"]))
            yield session

    endpoint = create_server_endpoint(CONFIG, quiet_end)
    with anyio.fail_after(PATIENCE_S):
        await endpoint.open()
        ends[0]()
        await turns()
        with pytest.raises(ProtocolFault) as caught:
            await endpoint.invoke("echo")
        assert caught.value.kind is FaultKind.TOOL_ERROR
        await turns()
        assert endpoint.phase is EndpointPhase.FAULTED
        assert (endpoint.fault.kind, endpoint.fault.dossier) == (FaultKind.TRANSPORT, None)
        await endpoint.close()


@pytest.mark.parametrize("members", [{"cwd": "/"}, {"restart": RestartPolicy()}])
def test_what_only_a_worker_can_give_is_refused(members: dict[str, Any]) -> None:
    """A user would believe that a setting has an effect."""
    factory: SessionFactory = Stage(ANSWERS).session
    with pytest.raises(ValueError, match=next(iter(members))):
        create_server_endpoint(StdioServerConfig(id="in", command="x", **members), factory)


async def test_leaving_a_seat_stops_its_link_and_waits_no_longer_than_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that hangs in its end would hold the program, or its timers outlive it."""
    monkeypatch.setattr(embedded_module, "EXIT_S", 0.0)
    released = asyncio.Event()

    @asynccontextmanager
    async def stubborn() -> AsyncIterator[ClientSession]:
        async with scripted_session(ANSWERS, LEGACY) as (session, _):
            yield session
        with anyio.CancelScope(shield=True):
            await released.wait()

    endpoint = create_server_endpoint(CONFIG, stubborn)
    session = endpoint._session
    assert isinstance(session, EmbeddedSession)
    with anyio.fail_after(PATIENCE_S):
        await endpoint.open()
        await session.end()
        assert session._handle.driver.timer is None
        released.set()
        assert session._owner is not None
        await asyncio.wait([session._owner])
    await endpoint.close()


async def test_a_seat_that_was_never_taken_is_left_without_a_word() -> None:
    """Closing an endpoint early would fail."""
    endpoint = Stage(ANSWERS).endpoint
    await endpoint._session.end()
    await endpoint.close()


async def test_a_message_in_memory_arrives_in_the_loops_next_turn() -> None:
    """Two ends would call each other in circles."""
    way, heard = MemoryWay(), []
    way.send([b"to nobody"])
    await turns(1)
    way.receive = heard.append
    way.send([b"x"])
    way.drain()
    assert heard == []
    await turns(1)
    assert heard == [[b"x"]]


async def test_a_session_of_this_process_has_prompts_and_resources_like_any_server() -> None:
    """An embedding program's own server would offer its tools alone."""
    refused: Answer = {"error": {"code": -32002, "message": "none", "data": {"uri": "f:2"}}}
    answers: dict[str, Answer] = {
        **ANSWERS,
        "prompts/list": {"result": {"prompts": [{"name": "p", "x-own": 1}]}},
        "resources/list": {"result": {"resources": []}},
        "resources/templates/list": METHOD_NOT_FOUND,
        "prompts/get": lambda params: {"result": {"messages": [], "told": params}},
        "resources/read": refused,
    }
    async with stage(answers, ABLE) as made:
        await made.endpoint.list_tools()
        [prompt] = made.endpoint.offers(Listing.PROMPTS)
        assert (prompt.key, b'"x-own":1' in prompt.definition) == ("p", True)
        assert made.endpoint.has_come(Listing.TEMPLATES)
        request = RawRequest("prompts/get", b'{"name":"p"}', b'{"m":1}')
        result = await ended(partial(made.endpoint.forward, request))
        assert result.value == {"messages": [], "told": {"name": "p", "_meta": {"m": 1}}}
        with pytest.raises(ProtocolFault) as caught:
            await ended(partial(made.endpoint.forward, RawRequest("resources/read", b'{"uri":"f:2"}')))
        assert caught.value.reply == ReplyError(-32002, "none", b'{"uri":"f:2"}')
        made.endpoint.tell("notifications/roots/list_changed")
        await made.server.until("notifications/roots/list_changed")
