"""What of a request goes on, and what its connection is told."""

from typing import Any

import pytest

from quarterdeck.host.client_use import ClientUses
from quarterdeck.host.http.admission import Admission, parse_name
from quarterdeck.host.http.connection import ADMITTED
from quarterdeck.host.http.serve import AdmissionMiddleware

pytestmark = pytest.mark.anyio


async def asked(token: bytes) -> list[str]:
    """What happens to a request with this token, in order."""
    happened: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        happened.append("served")

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            happened.append(str(message["status"]))

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer " + token)]
    state = {ADMITTED: lambda _: happened.append("admitted") or ""}
    scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": headers, "state": state}
    await AdmissionMiddleware(app, Admission([parse_name("localhost")], "secret"), ClientUses())(scope, receive, send)
    return happened


async def test_a_connection_is_known_from_its_first_request_that_is_admitted() -> None:
    """A client's long call would be cut as a stranger's, or a stranger keep its connection."""
    assert await asked(b"secret") == ["admitted", "served"]
    assert await asked(b"wrong") == ["401"]
