"""Connections of a row with a registry's URL: each is made to an address that was judged, and to no other."""

import ssl
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpcore2
import httpx2
import pytest
from support.servers.played_http import HttpAsked, answer, played_http
from support.waiting import PATIENCE_S

from quarterdeck_protocol.addresses import parse_address
from quarterdeck_protocol.link.frames import RemoteServer
from quarterdeck_worker.remote import internet_only
from quarterdeck_worker.remote.connection import dial
from quarterdeck_worker.remote.faults import root_cause, unreachable
from quarterdeck_worker.remote.internet_only import InternetOnlyNetwork, InternetOnlyTransport, closed
from quarterdeck_worker.remote.recorder import StatusRecorder

pytestmark = pytest.mark.anyio

INTERNET = "93.184.215.14"


class Dialled(httpcore2.AsyncNetworkBackend):
    """Notes what is connected to; the connections fail."""

    def __init__(self) -> None:
        self.addresses: list[str] = []

    async def connect_tcp(self, host: str, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        """Fail."""
        self.addresses.append(host)
        raise httpcore2.ConnectError("nothing listens there")


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The addresses that the next look-ups give; each is used once."""
    found: list[Sequence[str]] = []

    async def resolved(*_: object) -> Sequence[str]:
        return found.pop(0)

    monkeypatch.setattr(internet_only, "_resolved", resolved)
    return found


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "LOCALHOST", "127.1", "2130706433", "0.0.0.0", "[::1]", "169.254.169.254"],
)
async def test_nothing_is_sent_to_this_machine_however_it_is_spelled(host: str) -> None:
    """A stranger's entry would have us ask a service behind the user's firewall, before any question."""
    asked: list[HttpAsked] = []

    async def note(request: HttpAsked) -> bytes:
        asked.append(request)
        return answer(200, b"{}")

    async with played_http(note) as url:
        server = RemoteServer(f"http://{host}:{urlsplit(url).port}/mcp", internet_only=True)
        with anyio.fail_after(PATIENCE_S), pytest.raises(BaseException) as raised:
            async with dial(server, 1_000_000, StatusRecorder(), legacy=True):
                pass
        fault = unreachable(server.url, root_cause(raised.value), StatusRecorder())
    assert asked == []
    assert "and its row has internet_only" in fault.message
    assert fault.code == "connect_failed"


async def test_a_name_is_judged_at_each_connection(resolve: list[Sequence[str]]) -> None:
    """A name that led to the internet when it was looked at would lead to the router a moment later."""
    dialled = Dialled()
    network = InternetOnlyNetwork(dialled)
    resolve += [(INTERNET,), ("10.0.0.1",), ("10.0.0.1", INTERNET)]
    for message in ("nothing listens there", "10.0.0.1 is in a private network", "nothing listens there"):
        with pytest.raises(httpcore2.ConnectError, match=message):
            await network.connect_tcp("notes.example", 443)
    assert dialled.addresses == [INTERNET, INTERNET]


async def test_a_redirect_leads_nowhere_else(resolve: list[Sequence[str]]) -> None:
    """A server on the internet would send us on to the metadata of the cloud."""
    transport = InternetOnlyTransport(ssl.create_default_context(), InternetOnlyNetwork(Dialled()))
    resolve += [("169.254.169.254",)]
    async with httpx2.AsyncClient(transport=transport, follow_redirects=True) as client:
        with pytest.raises(httpx2.ConnectError, match="where a cloud serves credentials"):
            await client.get("http://metadata.example/")


def test_an_address_of_this_machine_is_closed_wherever_it_lies() -> None:
    """A service of ours that listens on a public address would be a stranger's to ask."""
    assert closed(INTERNET, ()) == ""
    assert (
        closed(INTERNET, {parse_address(INTERNET)})
        == f"{INTERNET} is an address of this machine, and its row has internet_only"
    )
