"""Where a client's requests begin, and with what: the same whatever carried them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from support.tools.offer_fleet import OfferFleet, OfferServer, Pending
from support.tools.task_servers import older_server
from support.tools.tool_boxes import LiveBox
from support.waiting import until

from quarterdeck.host.asks.parked import ParkingAnswerer
from quarterdeck.host.budget.kept_results import SCHEME, KeptResults
from quarterdeck.host.caller import Caller
from quarterdeck.host.offers.content import Content
from quarterdeck.route.router import Router
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.mcp.jsonrpc import METHOD_NOT_FOUND
from quarterdeck_protocol.mcp.server.requests import Request, Resumption
from quarterdeck_protocol.mcp.tasks import NO_TASKS, TaskSupport, taking_tasks
from quarterdeck_protocol.offers import OfferSource
from quarterdeck_protocol.questions import Answerer, Question, QuestionEnd
from quarterdeck_protocol.tools import (
    CallEnd,
    CancelToken,
    Client,
    Deliver,
    PendingCall,
    ProgressNote,
    RawCall,
    ToolCall,
    ToolOutcome,
    ToolSource,
    WireResult,
)

ADA = Client("ada", "door")
HERE = Client("ada", "door", is_local=True)
ABLE = b'{"elicitation":{}}'
DONE = WireResult(b'{"content":[]}', "2025-11-25")
ASKING = "input_required"
ASKS = WireResult(b'{"inputRequests":{},"requestState":"mine"}', "2026-07-28", result_type=ASKING)


class Box(LiveBox):
    """A box whose one tool is a server's, and is called another name by clients."""

    def __init__(self, end: CallEnd = DONE) -> None:
        super().__init__()
        self.end = end
        self.calls: list[RawCall] = []

    def own(self, name: str) -> str:
        """See `ToolSource`."""
        return name.replace("short", "fs__long")

    def begin(self, call: RawCall, deliver: Deliver) -> PendingCall | None:
        """See `ToolSource`."""
        if call.tool == "native":
            return None
        self.calls.append(call)
        deliver(self.end)
        return Pending()


class Person:
    """Answers a client's questions."""

    capabilities = ABLE
    bridges = True

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        """See `Answerer`."""
        raise AssertionError


def request(method: str = "tools/call", *, is_modern: bool = True, **options: Any) -> Request:
    """A call of the tool `short`, or a request for the prompt `plan`."""
    is_call = method == "tools/call"
    return Request(
        key=1,
        id_json=b"1",
        version="2026-07-28" if is_modern else "2025-03-26",
        name=options.pop("name", "short") if is_call else "",
        arguments=b'{"a":1.0}' if is_call else b'{"name":"fs__plan"}',
        meta=b'{"own":1}',
        progress_token=b"",
        is_modern=is_modern,
        method=method,
        **options,
    )


def caller(
    box: ToolSource,
    offers: OfferSource | None = None,
    answerer: Answerer | None = None,
    *,
    results: KeptResults | None = None,
    logins: Any = None,
    client: Client = ADA,
) -> Caller:
    """The client `ADA`, as it makes requests."""
    content = Content(box=box, name="hub", version="1", offers=offers, results=results, logins=logins)
    return Caller(content, client, answerer)


async def end_of(asks: Caller, wish: Request) -> Any:
    """How a request ends."""
    ends: list[CallEnd] = []
    asks.begin(wish, ends.append)
    await until(lambda: ends)
    [end] = ends
    return end


async def sealed_state(asks: Caller, wish: Request) -> str:
    """The state that a client takes along of a request that a server answers with a question."""
    state: str = json.loads((await end_of(asks, wish)).body)["requestState"]
    return state


def with_params(wish: Request, **params: object) -> Request:
    """The same request with other params."""
    return msgspec.structs.replace(wish, arguments=msgspec.json.encode(params))


def note(_: ProgressNote) -> None:
    """Takes progress."""


def test_a_call_carries_all_that_its_client_said() -> None:
    """A server would not learn who asks, what may be asked of them, or what they want to know."""
    box, person = Box(), Person()
    asks = caller(box, None, person)
    asks.begin(request(is_modern=False, log_level="debug", on_progress=note), lambda _: None)
    expected = RawCall("short", b'{"a":1.0}', b'{"own":1}', None, note, ADA, person, "debug")
    assert box.calls == [expected]


async def test_another_request_carries_it_too() -> None:
    """Prompts would be asked for by nobody in particular."""
    server, person = OfferServer("fs", prompts=("plan",)), Person()
    asks = caller(Box(), Router(OfferFleet(server)), person)
    asks.begin(request("prompts/get", is_modern=False, log_level="debug", on_progress=note), lambda _: None)
    [asked] = server.asked
    assert (asked.method, asked.params, asked.meta) == ("prompts/get", b'{"name":"plan"}', b'{"own":1}')
    assert (asked.client, asked.answerer, asked.log_level, asked.on_progress) == (ADA, person, "debug", note)


@pytest.mark.parametrize("is_modern", [True, False])
async def test_a_native_tool_is_run_and_answered_as_a_servers_is(*, is_modern: bool) -> None:
    """A native tool would have to be called in a way of its own, by each carrier."""
    box, seen = Box(), list[ToolCall]()

    async def run(call: ToolCall, _: CancelToken) -> ToolOutcome:
        seen.append(call)
        return ToolOutcome(call.id, "done", structured={"n": 2**70})

    box.native("native", run)
    end = await end_of(caller(box), request(name="native", is_modern=is_modern, on_progress=note))
    found = json.loads(end.body)
    assert (found["content"], found["isError"]) == ([{"type": "text", "text": "done"}], False)
    assert found.get("structuredContent") == ({"n": 2**70} if is_modern else None)
    [call] = seen
    assert (call.name, call.input, call.report, call.client, box.calls) == ("native", {"a": 1.0}, note, ADA, [])


async def test_a_call_is_noted_by_the_name_of_a_native_tool_alone() -> None:
    """A client could have the figures of real tools cut, by names that it makes up."""
    box, noted = Box(), list[str]()

    async def run(call: ToolCall, _: CancelToken) -> ToolOutcome:
        return ToolOutcome(call.id, "done")

    box.native("native", run)
    content = Content(box=box, name="hub", version="1", note=lambda name, *_: noted.append(name))
    for names in (frozenset[str](), frozenset({"native"})):
        box.native_names = names
        await end_of(Caller(content, ADA, None), request(name="native"))
    assert noted == ["", "native"]


@pytest.mark.parametrize(("raised", "words"), [(ValueError("boom"), "boom"), (KeyError(), "KeyError")])
async def test_a_native_tool_that_raises_is_an_error_in_its_own_words(raised: Exception, words: str) -> None:
    """A model can only act on what it can read, and a carrier would wait for ever."""
    box = Box()

    async def run(call: ToolCall, _: CancelToken) -> ToolOutcome:
        raise raised

    box.native("native", run)
    end = await end_of(caller(box), request(name="native"))
    assert json.loads(end.body) == {"content": [{"type": "text", "text": words}], "isError": True}


async def test_a_native_call_that_is_given_up_ends_though_it_shields_itself() -> None:
    """A command would go on for a client that has left, or its late answer find nobody."""
    box, ends, stopped = Box(), list[CallEnd](), asyncio.Event()

    async def run(call: ToolCall, token: CancelToken) -> ToolOutcome:
        token.on_cancel(stopped.set)
        with anyio.CancelScope(shield=True):
            await stopped.wait()
        return ToolOutcome(call.id, "late")

    box.native("native", run)
    running = caller(box).begin(request(name="native"), ends.append)
    await anyio.lowlevel.checkpoint()
    assert running.cancel("enough") is Delivery.UNKNOWN
    await anyio.wait_all_tasks_blocked()
    assert (stopped.is_set(), ends) == (True, [])


async def test_a_request_that_nobody_answers_has_its_end() -> None:
    """Its client would wait for ever."""
    end = await end_of(caller(Box()), request("prompts/get"))
    assert end.reply == ReplyError(METHOD_NOT_FOUND, "Method not found", b'"prompts/get"')


class Readers:
    """Allows one tool."""

    words = "the token 'ci'"
    max_result_bytes = None

    def allows(self, name: str, listing: str = "tools") -> bool:
        """See `Allowance`."""
        return name == "fs__read"

    def allows_some_of(self, server: str) -> bool:
        """See `Allowance`."""
        return server == "fs"


@pytest.mark.parametrize("name", ["short", "native"])
async def test_what_a_client_may_not_call_is_begun_nowhere(name: str) -> None:
    """A token would be worth as much as another."""
    box = Box()
    end = await end_of(caller(box, client=Client("ci", "token ci", Readers())), request(name=name))
    assert (end.code, box.calls) == ("not_granted", [])
    assert end.message == f"the token 'ci' does not allow the tool {name!r}"


async def test_a_client_that_searches_finds_and_calls_by_the_two_tools() -> None:
    """It would be shown two tools that nobody answers."""
    box = Box()
    box.graft("fs__mail", name="mail", description="sends mail", inputSchema={"type": "object"})
    asks = caller(box, client=Client("ada", "door", is_searched=True))
    search = await end_of(asks, with_params(request(name="search_tools"), query="mail"))
    [found] = json.loads(json.loads(search.body)["content"][0]["text"])["tools"]
    assert found["name"] == "fs__mail"
    await end_of(asks, with_params(request(name="call_tool"), name="fs__mail", arguments={"to": "ada"}))
    assert [(call.tool, call.arguments) for call in box.calls] == [("fs__mail", b'{"to":"ada"}')]
    refused = await end_of(asks, with_params(request(name="call_tool")))
    assert (refused.code, refused.message.startswith("call_tool takes the name of a tool")) == ("bad_arguments", True)


async def test_an_older_clients_own_answerer_is_never_a_newer_ones() -> None:
    """A client of 2026-07-28 would be sent a request that its era does not know."""
    box = Box()
    asks = caller(box, None, Person())
    asks.begin(request(capabilities=ABLE), lambda _: None)
    assert not isinstance(box.calls[0].answerer, Person)


@pytest.mark.parametrize(("capabilities", "kind"), [(ABLE, ParkingAnswerer), (b"{}", type(None)), (b"", type(None))])
async def test_a_newer_client_is_asked_by_a_result_as_far_as_it_can_be_asked(
    capabilities: bytes, kind: type[object]
) -> None:
    """Each call of a client that answers nothing would be kept for one."""
    box = Box()
    caller(box).begin(request(capabilities=capabilities), lambda _: None)
    assert type(box.calls[0].answerer) is kind
    if box.calls[0].answerer is not None:
        assert box.calls[0].answerer.capabilities == ABLE


async def test_a_call_that_is_made_again_brings_the_answers_and_the_state() -> None:
    """A server would forget what it was doing."""
    box = Box(ASKS)
    asks = caller(box)
    brought = Resumption(await sealed_state(asks, request(capabilities=ABLE)), b'{"q":{"action":"accept"}}')
    asks.begin(request(capabilities=ABLE, resumption=brought, on_progress=note), lambda _: None)
    first, asked = box.calls
    assert (first.answers, asked.tool, asked.arguments) == (b"", "short", b'{"a":1.0}')
    assert json.loads(asked.answers) == {"inputResponses": {"q": {"action": "accept"}}, "requestState": "mine"}
    assert (asked.meta, asked.client, asked.on_progress) == (b'{"own":1}', ADA, note)


@pytest.mark.parametrize("given", [{"requestState": "mine"}, {}])
async def test_another_request_that_is_made_again_has_its_own_params_too(given: dict[str, str]) -> None:
    """A server would get back a state that it never gave, or not the one it did."""
    server = OfferServer("fs", prompts=("plan",))
    asks = caller(Box(), Router(OfferFleet(server)))
    server.end = WireResult(json.dumps({"inputRequests": {}, **given}).encode(), "2026-07-28", result_type=ASKING)
    brought = Resumption(await sealed_state(asks, request("prompts/get", capabilities=ABLE)), b"")
    await end_of(asks, request("prompts/get", capabilities=ABLE, resumption=brought))
    assert json.loads(server.asked[1].params) == {"name": "plan", "inputResponses": {}, **given}


async def test_a_state_is_of_one_tool_alone() -> None:
    """A client could have the answers to one tool's question given to another, with the same arguments."""
    asks = caller(Box(ASKS))
    brought = Resumption(await sealed_state(asks, request(capabilities=ABLE)), b"{}")
    again = request(name="another", capabilities=ABLE, resumption=brought)
    assert (await end_of(asks, again)).code == "not_resumable"


@pytest.mark.parametrize("is_modern", [True, False])
@pytest.mark.parametrize("tasks", [TaskSupport.EXTENDS, TaskSupport.CALLS, NO_TASKS])
def test_a_client_is_given_a_task_of_its_own_era_alone(tasks: TaskSupport, *, is_modern: bool) -> None:
    """A fault of a call would be for its program and not for its model; or a client get what it cannot read."""
    asks = caller(Box(), Router(OfferFleet(OfferServer("fs", tasks=tasks))))
    wish: Any = {"capabilities": taking_tasks(b"{}")} if is_modern else {"task": b"{}"}
    own = TaskSupport.EXTENDS if is_modern else TaskSupport.CALLS
    assert asks.takes_task(request(is_modern=is_modern, **wish)) == (tasks is own)
    assert not asks.takes_task(request(is_modern=is_modern))


@pytest.mark.parametrize(("max_tokens", "is_cut"), [(None, False), (10, True)])
async def test_a_result_is_cut_where_there_is_a_budget(max_tokens: int | None, *, is_cut: bool) -> None:
    """Results would be cut that nobody bounded, or each of them looked through for nothing."""
    body = json.dumps({"content": [{"type": "text", "text": "x" * 500}]}).encode()
    asks = caller(Box(WireResult(body, "2025-11-25")), results=KeptResults(max_tokens))
    assert ((await end_of(asks, request())).body == body) is not is_cut


@pytest.mark.parametrize("is_modern", [True, False])
@pytest.mark.parametrize("has_schema", [True, False])
async def test_a_result_is_cut_for_any_client_but_for_what_a_schema_describes(
    *, has_schema: bool, is_modern: bool
) -> None:
    """A client of one era would get all of it, or one that checks the structure refuse the result."""
    structured = {"a": "s" * 60}
    body = {"content": [{"type": "text", "text": "x" * 500}], "structuredContent": structured}
    box = Box(WireResult(json.dumps(body).encode(), "2025-11-25"))
    box.graft("fs__long", name="long", **({"outputSchema": {"type": "object"}} if has_schema else {}))
    asks = caller(box, results=KeptResults(10))
    found = json.loads((await end_of(asks, request(is_modern=is_modern))).body)
    assert found.get("structuredContent") == (structured if has_schema else None)
    said = found["content"][0]["text"]
    uri = SCHEME + said.partition(SCHEME)[2].partition("]")[0]
    whole = await end_of(asks, with_params(request("resources/read", is_modern=is_modern), uri=uri))
    assert [len(each["text"]) for each in json.loads(whole.body)["contents"]] == [500] + [69] * (not has_schema)


@pytest.mark.parametrize("has_schema", [True, False])
async def test_the_result_of_a_task_is_cut_by_the_schema_of_the_tool_that_was_called(*, has_schema: bool) -> None:
    """A tool would give a model as much as it likes, in the structured content of a task."""
    body = {"content": [], "structuredContent": {"a": "s" * 600}}
    schema = {"outputSchema": {"type": "object"}} if has_schema else {}
    server = older_server(result=json.dumps(body).encode())
    server.tools["work"] = json.dumps({"name": "work", "inputSchema": {"type": "object"}, **schema}).encode()
    router = Router(OfferFleet(server))
    asks = caller(router, router, results=KeptResults(10))
    await end_of(asks, request(name="a__work", is_modern=False, task=b"{}"))
    result = await end_of(asks, with_params(request("tasks/result", is_modern=False), taskId="1"))
    assert ("structuredContent" in json.loads(result.body)) == has_schema


class Logins:
    """Where a person could log in, if this were not a test."""

    def __init__(self) -> None:
        self.joins: list[str] = []

    def may_ask(self, *_: str) -> bool:
        """See `LoginBroker`."""
        return True

    @asynccontextmanager
    async def joined(self, server: str) -> AsyncIterator[None]:
        """See `LoginBroker`."""
        self.joins.append(server)
        yield None


@pytest.mark.parametrize(
    ("method", "client", "is_asked"),
    [
        ("prompts/get", HERE, True),
        ("tools/call", HERE, True),
        ("completion/complete", HERE, True),
        ("x/y", HERE, False),
        ("tools/call", ADA, False),
    ],
)
async def test_a_request_of_a_client_of_this_machine_may_open_a_login(
    method: str, client: Client, *, is_asked: bool
) -> None:
    """A reader of a prompt would get a command where a tool's caller is asked; a browser elsewhere cannot come back."""
    fault = ProtocolFault.not_sent(FaultKind.TOOL_ERROR, "it requires login again", "auth_needed")
    server, person, logins = OfferServer("fs", prompts=("plan",), fault=fault), Person(), Logins()
    person.capabilities = b'{"elicitation":{"url":{}}}'
    asks = caller(Box(fault), Router(OfferFleet(server)), person, logins=logins, client=client)
    wish = request(method, is_modern=False)
    if method == "completion/complete":
        prompt = {"type": "ref/prompt", "name": "fs__plan"}
        wish = with_params(wish, ref=prompt, argument={"name": "a", "value": ""})
    await end_of(asks, wish)
    assert logins.joins == (["fs"] if is_asked else [])
