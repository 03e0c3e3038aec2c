"""Streams that break off are opened again by the last event's id, ever more seldom, and end with who waits for them."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import httpx2
import pytest
from support.servers.played_http import EVENTS, HttpAsked, Said, answer, echo_event, echoed, event, events
from support.servers.remote_calls import calling
from support.waiting import PATIENCE_S, eventually_async

from quarterdeck_protocol.faults import Delivery
from quarterdeck_protocol.link.frames import Call, ListChanged
from quarterdeck_protocol.mcp.client.asks import MAX_ASK_BYTES
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_worker.remote import client, streams
from quarterdeck_worker.remote.bodies import bound
from quarterdeck_worker.remote.client import MAX_UNASKED_BYTES, PatientClient
from quarterdeck_worker.remote.recorder import StatusRecorder
from quarterdeck_worker.remote.reopening import ANSWERING, MAX_RETRY_S, MAX_TRIES, STANDING
from quarterdeck_worker.remote.streams import IDLE_BYTES, IDLE_BYTES_PER_S, Timing

pytestmark = [pytest.mark.anyio, pytest.mark.process]

DAY_S = 86_400.0
URL = "http://h.example/mcp"
CHANGED = {"method": "notifications/tools/list_changed"}


class Time:
    """Time that passes only in pauses; it stands still after a day."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self.is_over = anyio.Event()

    async def sleep(self, seconds: float) -> None:
        """See `Timing`."""
        self.pauses.append(seconds)
        self.now += seconds
        if self.now > DAY_S:
            self.is_over.set()
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()

    @property
    def timing(self) -> Timing:
        """Without chance: each pause is the longest that it can be."""
        return Timing(lambda: self.now, self.sleep, lambda: 1.0)


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Pauses of the streams take no time."""
    time = Time()
    monkeypatch.setattr(streams, "Timing", lambda: time.timing)
    return time


async def cut(said: bytes) -> AsyncIterator[bytes]:
    """As a network brings it."""
    for at in range(0, len(said), 65_536):
        yield said[at : at + 65_536]


class Server:
    """What answers each GET, in its turn; the last one all that follow."""

    def __init__(self, *answers: Any) -> None:
        self.answers = answers
        self.asked: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """See `MockTransport`."""
        self.asked.append(request)
        said = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(said, Exception):
            raise said
        if isinstance(said, bytes):
            return httpx2.Response(
                200, headers={"content-type": "text/event-stream; charset=utf-16"}, content=cut(said)
            )
        assert isinstance(said, httpx2.Response)
        return httpx2.Response(said.status_code, headers=said.headers)

    @property
    def ids(self) -> list[str | None]:
        """The id of each GET."""
        return [request.headers.get("last-event-id") for request in self.asked]


def client_of(
    server: Callable[[httpx2.Request], httpx2.Response],
    time: Time,
    recorder: StatusRecorder | None = None,
    max_bytes: int = 1_000,
) -> PatientClient:
    """A client of it."""

    async def unpack(response: httpx2.Response) -> None:
        bound(response, 1_000)

    recorder = recorder or StatusRecorder(lambda: time.now)
    recorder.greeted(has_session=True)
    hooks = {"response": [unpack]}
    transport = httpx2.MockTransport(server)
    return PatientClient(
        "http://h.example", recorder, max_bytes, timing=time.timing, transport=transport, event_hooks=hooks
    )


async def read_standing(client: PatientClient, until: anyio.Event | None = None) -> bytes:
    """All that comes of the standing stream until it ends, or until then."""
    passed = b""
    with anyio.fail_after(PATIENCE_S):
        async with client, anyio.create_task_group() as tasks:

            async def read() -> None:
                nonlocal passed
                async with client.stream("GET", URL, headers={"mcp-session-id": "s"}) as response:
                    async for piece in response.aiter_raw():
                        passed += piece
                tasks.cancel_scope.cancel()

            tasks.start_soon(read)
            await (until or anyio.Event()).wait()
            tasks.cancel_scope.cancel()
    return passed


@pytest.mark.parametrize("retry", [b"", b"retry: 0\n\n", b"retry: 1e12\n\n", b"retry: -1\n\n", b"retry: " + b"9" * 400])
async def test_a_server_that_ends_its_stream_at_once_is_asked_a_bounded_number_of_times(retry: bytes) -> None:
    """It would be asked as fast as it answers, or never again."""
    time, server = Time(), Server(b": hello\n\n" + retry + b"\n")
    assert await read_standing(client_of(server, time), time.is_over) == b""
    assert len(server.asked) <= DAY_S / STANDING.longest_s + 10
    assert len(server.asked) >= DAY_S / (STANDING.longest_s * 1.25) - 10
    assert min(time.pauses) >= STANDING.first_s


@pytest.mark.parametrize("failure", [httpx2.ConnectError("gone"), httpx2.ReadError("broke off"), httpx2.Response(502)])
async def test_a_stream_is_found_again_after_a_long_failure(failure: Any) -> None:
    """A laptop that slept, or a proxy that was restarted, would have cost all news of the session."""
    time = Time()
    server = Server(b"id: 1\n\n", *[failure] * 20, event(CHANGED), httpx2.Response(405))
    assert b"list_changed" in await read_standing(client_of(server, time))
    assert server.ids == [None, *["1"] * 22]
    assert server.asked[1].headers["mcp-session-id"] == "s"


async def test_a_stream_that_held_is_opened_again_soon() -> None:
    """A host that ends streams after some minutes would have us miss ever more between two."""
    time = Time()

    async def long() -> AsyncIterator[bytes]:
        time.now += STANDING.steady_s
        yield b": ping\n\n"

    def play(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=long())

    await read_standing(client_of(play, time), time.is_over)
    assert set(time.pauses) == {STANDING.first_s * 1.25}


@pytest.mark.parametrize("status", [200, 204, 302, 400, 403, 404, 405, 501])
async def test_a_server_without_such_a_stream_is_asked_once(status: int) -> None:
    """It would be asked for ever for what it does not have."""
    time, server = Time(), Server(httpx2.Response(status, headers={"location": "http://other.example/"}))
    client = client_of(server, time)
    async with client:
        async with client.stream("GET", URL) as response:
            assert await response.aread() == b""
        for _ in range(5):
            assert (await client.get(URL)).status_code == 405
    assert len(server.asked) == 1
    assert {request.url.host for request in server.asked} == {"h.example"}, "no other origin is asked"
    assert time.pauses == []


async def test_a_redirect_within_the_origin_is_followed_and_a_loop_of_them_is_not() -> None:
    """A server that moved its path would have no news for us; one that sends us in a circle would keep us busy."""
    time = Time()
    moved = httpx2.Response(307, headers={"location": "/elsewhere"})
    server = Server(moved, event(CHANGED), httpx2.Response(405))
    assert b"list_changed" in await read_standing(client_of(server, time))
    assert [request.url.path for request in server.asked] == ["/mcp", "/elsewhere", "/mcp"]
    server = Server(moved)
    await read_standing(client_of(server, time))
    assert len(server.asked) <= 21


@pytest.mark.parametrize(("status", "is_open", "is_over"), [(404, True, True), (401, True, True), (404, False, False)])
async def test_a_stream_that_is_known_no_more_ends_the_session_if_it_ever_was(
    status: int, is_open: bool, is_over: bool
) -> None:
    """A restarted server would be found out by the next call, which fails; one without streams would be given up."""
    time = Time()
    recorder = StatusRecorder(lambda: time.now)
    server = Server(*[b": open\n\n"] * is_open, httpx2.Response(status))
    await read_standing(client_of(server, time, recorder))
    assert (recorder.rejected.is_set(), recorder.status) == (is_over, status if is_over else None)


async def test_a_pause_that_the_server_asks_for_is_kept() -> None:
    """A server that is overrun would be asked on."""
    time = Time()
    busy = httpx2.Response(429, headers={"retry-after": "120"})
    server = Server(busy, b"retry: 20000\n\n", b"retry: 999999\n\n", httpx2.Response(405))
    await read_standing(client_of(server, time))
    assert time.pauses == [120.0, 20.0, MAX_RETRY_S]


async def test_a_stream_that_says_nothing_is_read_slowly_and_passes_nothing_on() -> None:
    """Comments at full speed would keep a processor busy; pings would wake the worker's client."""
    time, server = Time(), Server(b": ping\n\n" * (3 * IDLE_BYTES // 8), httpx2.Response(405))
    assert await read_standing(client_of(server, time)) == b""
    assert sum(time.pauses) >= IDLE_BYTES / IDLE_BYTES_PER_S


async def test_a_message_that_nobody_asked_for_has_a_bound_of_its_own() -> None:
    """A line without an end would take as much memory as the largest result."""
    time = Time()
    question = b"data: " + b"x" * MAX_ASK_BYTES + b"\n\n"
    server = Server(question + b"data: " + b"y" * MAX_UNASKED_BYTES + b"y\n\n", httpx2.Response(405))
    passed = await read_standing(client_of(server, time, max_bytes=64 * 1024 * 1024))
    assert passed.startswith(question)
    assert len(passed) <= 2 * MAX_UNASKED_BYTES
    assert passed.endswith(b"\nevent: unknown\n\n")


async def test_an_event_beyond_the_bound_is_dropped_and_the_stream_goes_on() -> None:
    """Memory would fill up, or one line end all news."""
    time = Time()
    large = b"id: " + b"9" * 10_000_000 + b"\ndata: " + b"x" * 10_000_000 + b"\n\n"
    server = Server(large + event(CHANGED), httpx2.Response(405))
    passed = await read_standing(client_of(server, time))
    assert b"list_changed" in passed
    assert len(passed) < 2_000


# Through all that a worker has: calls


def broken_off(*resumed: bytes | None, first: bytes = b"id: 1\ndata:\n\n") -> tuple[Any, Any, list[HttpAsked]]:
    """A server whose call's stream ends at once; what its GETs with an id are answered, in their turn."""
    gets: list[HttpAsked] = []

    async def play(asked: HttpAsked) -> Said:
        if asked.text == "good":
            return echoed(asked)
        plays.append(asked)
        return events(first)

    async def get(asked: HttpAsked) -> Said:
        if "last-event-id" not in asked.headers:
            return answer(405)
        gets.append(asked)
        said = resumed[min(len(gets), len(resumed)) - 1]
        return said if said is not None else events(echo_event(plays[0]))

    plays: list[HttpAsked] = []
    return play, get, gets


@pytest.mark.parametrize("retry", [b"", b"retry: 0\n", b"retry: 1e12\n", b"retry: " + b"9" * 400 + b"\n"])
async def test_a_calls_stream_is_taken_up_by_id_and_its_result_is_not_lost(passing: Time, retry: bytes) -> None:
    """A proxy that cuts long answers would cost their results."""
    cut = EVENTS + b'id: \xc3\xa4-2\ndata:\n\nid: 3\ndata: {"jsonrpc": "2.0", "id": 3, "resu'

    async def cut_off() -> Any:
        yield cut

    play, get, gets = broken_off(cut, None, first=b"id: 1\n" + retry + b"data:\n\n")

    async def got(asked: HttpAsked) -> Said:
        said = await get(asked)
        return cut_off() if said == cut else said

    async with calling(play, got) as caller:
        assert isinstance(await caller.call("late"), SplitResult)
        assert [asked.headers["last-event-id"].encode("utf-8", "surrogateescape") for asked in gets] == [
            b"1",
            b"\xc3\xa4-2",
        ]
        assert {asked.headers["mcp-session-id"] for asked in gets} == {"session-1"}
        assert all(ANSWERING.first_s <= pause_s <= MAX_RETRY_S for pause_s in passing.pauses), passing.pauses


async def test_a_call_is_taken_up_as_often_as_its_server_likes(passing: Time) -> None:
    """A server that has its clients poll would lose the results of long calls after some hundred times."""
    empty = answer(200, b"id: 2\n\n", content_type="text/event-stream")
    play, get, gets = broken_off(*[empty] * 400, None)
    async with calling(play, get) as caller:
        assert isinstance(await caller.call("late"), SplitResult)
        assert len(gets) == 401
        assert passing.now >= 390 * ANSWERING.longest_s, "but not as soon as it likes"


@pytest.mark.parametrize(
    ("said", "code", "tries"),
    [
        (answer(405), "server_lost", 1),
        (answer(404), "session_gone", 1),
        (answer(401), "auth_needed", 1),
        (answer(503), "server_lost", MAX_TRIES),
        (answer(200, b"{}", content_type="application/json"), "server_lost", 1),
    ],
)
@pytest.mark.usefixtures("passing")
async def test_a_call_that_cannot_be_taken_up_says_so(said: bytes, code: str, tries: int) -> None:
    """It would wait until its deadline, or look as if it had not been carried out."""
    play, get, gets = broken_off(said)
    async with calling(play, get) as caller:
        fault = await caller.fault("late")
        assert (fault.code, fault.delivery, len(gets)) == (code, Delivery.UNKNOWN, tries)
        if code == "server_lost":
            assert isinstance(await caller.call("good"), SplitResult)
        else:
            await caller.is_lost.wait()
            assert caller.loss is not None
            assert caller.loss.code == code


@pytest.mark.parametrize(
    "head", [EVENTS, b"HTTP/1.1 200 Played\r\nx: ", EVENTS.replace(b"text/event-stream", b"application/json")]
)
async def test_a_call_that_is_given_up_leaves_no_connection(head: bytes) -> None:
    """A hundred calls that ran into their deadline would be all the connections that there are."""
    closed, begun = anyio.Event(), anyio.Event()

    async def endless() -> Any:
        try:
            yield head
            begun.set()
            while True:
                yield b":\n" if head is EVENTS else b"x"
                await anyio.sleep(0.01)
        finally:
            closed.set()

    async def play(asked: HttpAsked) -> Said:
        return endless() if asked.text == "bad" else echoed(asked)

    async with calling(play) as caller:
        assert caller.server is not None
        caller.server.call(Call(7, 60.0, "echo"), b'{"text": "bad"}', lambda _: None)
        await begun.wait()
        assert caller.server.cancel(7, "too late")
        await closed.wait()
        assert isinstance(await caller.call("good"), SplitResult)


async def test_a_notification_that_is_not_taken_holds_up_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK sends one message after the other, but for requests: all calls after a cancelled one would hang."""
    monkeypatch.setattr(client, "NOTE_S", 0.05)
    held = anyio.Event()

    async def silent() -> Any:
        held.set()
        await anyio.sleep_forever()
        yield b""

    async def play(asked: HttpAsked) -> Said:
        return events(b":\n") if asked.text == "bad" else echoed(asked)

    def takes(asked: HttpAsked) -> Said:
        return silent() if asked.message.get("method") == "notifications/cancelled" else None

    async with calling(play, notes=takes) as caller:
        assert caller.server is not None
        caller.server.tell("notifications/cancelled", b'{"requestId": 99}')
        await held.wait()
        assert isinstance(await caller.call("good"), SplitResult)


async def test_a_call_that_is_given_up_is_not_taken_up_any_more(passing: Time) -> None:
    """A server could have us come back for ever for a call that nobody waits for."""
    play, get, gets = broken_off(answer(200, b"id: 2\n\n", content_type="text/event-stream"))
    async with calling(play, get) as caller:
        assert caller.server is not None
        caller.server.call(Call(7, 60.0, "echo"), b'{"text": "late"}', lambda _: None)
        await eventually_async(lambda: len(gets) > 3)
        caller.server.cancel(7, "too late")
        assert isinstance(await caller.call("good"), SplitResult)
        count = len(gets)
        for _ in range(5):
            assert isinstance(await caller.call("good"), SplitResult)
        assert len(gets) <= count + 1


async def test_a_standing_stream_that_only_pings_is_no_news_to_the_supervisor(passing: Time) -> None:
    """Each ping of each server would wake it."""
    said = b": ping\n\nid: 1\n\nevent: ping\ndata: {}\n\n" * 1_000
    opened: list[str | None] = []

    async def get(asked: HttpAsked) -> Said:
        opened.append(asked.headers.get("last-event-id"))
        return events(said, event(CHANGED), said) if len(opened) == 1 else answer(405)

    async def play(asked: HttpAsked) -> Said:
        return echoed(asked)

    async with calling(play, get) as caller:
        await eventually_async(lambda: len(opened) > 1)
        assert isinstance(await caller.call("good"), SplitResult)
        assert caller.news == [ListChanged("tools")]
        assert opened == [None, "1"]
