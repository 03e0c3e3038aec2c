"""The daemon on HTTP: tried again while it cannot listen, on the socket of the daemon before where doors bring that."""

import socket
from collections.abc import AsyncIterator

import pytest
from support.waiting import eventually_async

from quarterdeck.common.http_wish import HttpWish
from quarterdeck.config.settings import Settings
from quarterdeck.daemon import http_listening as module
from quarterdeck.daemon.decks import Decks
from quarterdeck.daemon.http_listening import HttpListening
from quarterdeck.host.http.options import HttpOptions, split_address


class Lab:
    """A daemon's HTTP, whose options cannot be had for as long as a test says so."""

    def __init__(self) -> None:
        self.why = ""
        self.kept: list[HttpWish] = []
        decks = Decks(lambda *_: Settings(), lambda *_: None)  # type: ignore[arg-type, return-value]
        self.http = HttpListening(decks, self._options, lambda _: None, self.kept.append)

    def _options(self, wish: HttpWish) -> HttpOptions:
        if self.why:
            raise ValueError(self.why)
        bind, port = split_address(wish.address)
        return HttpOptions(bind=bind, port=port, token="x" * 32)

    @property
    def problem(self) -> str:
        """What `status` shows."""
        found = self.http.status
        return found.problem if found is not None else ""


@pytest.fixture
async def at(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    made = Lab()
    yield made
    await made.http.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


async def test_what_cannot_listen_says_why_and_tries_again(at: Lab) -> None:
    """HTTP would stay away for as long as the daemon lives, whatever was in the way at its start."""
    at.why = "it is too early"
    await at.http.begin(HttpWish(f"127.0.0.1:{free_port()}"))
    assert (at.http.is_there, at.problem) == (False, "it is too early")
    at.why = ""
    await eventually_async(lambda: at.http.is_there)
    assert at.problem == ""


@pytest.mark.process
async def test_a_daemon_listens_on_the_socket_that_a_door_brings(at: Lab) -> None:
    """The address is in use as long as doors hold the socket: the next daemon could not listen, and none would."""
    held = socket.create_server(("127.0.0.1", 0))
    host, port = held.getsockname()
    with socket.create_connection((host, port)):  # comes before the daemon does
        at.http.offer(held)
        await at.http.begin(HttpWish(f"{host}:{port}"), succeeds=True)
        assert at.http.is_there
        assert at.http.listener is held
        assert [wish.address for wish in at.kept] == [f"{host}:{port}"]
    await at.http.close()
    assert held.fileno() == -1


async def test_a_socket_that_listens_elsewhere_is_closed(at: Lab) -> None:
    """Clients of the former address would wait in a queue that nobody serves."""
    held = socket.create_server(("127.0.0.1", 0))
    at.http.offer(held)
    await at.http.begin(HttpWish(f"127.0.0.1:{free_port()}"), succeeds=True)
    assert at.http.is_there
    assert held.fileno() == -1


async def test_a_daemon_that_is_not_to_listen_closes_what_doors_bring(at: Lab) -> None:
    """The same, and its doors are told to hold nothing."""
    early, late = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    at.http.offer(early)
    await at.http.begin(None)
    at.http.offer(late)
    assert (early.fileno(), late.fileno(), at.http.listener) == (-1, -1, None)
