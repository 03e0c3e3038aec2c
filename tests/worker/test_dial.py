"""Reaching remote servers: what HTTP says is remembered, what the network says comes through."""

import socket

import httpx2
import pytest

from quarterdeck_protocol.configs import SseServerConfig, StreamableHttpServerConfig
from quarterdeck_worker.dial import Telltale, dial

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("status", "wants_credentials", "is_another_transport"),
    [
        (200, False, False),
        (202, False, False),
        (400, False, True),
        (401, True, False),
        (403, True, False),
        (404, False, True),
        (405, False, True),
        (500, False, False),
    ],
)
async def test_a_bad_status_tells_what_to_do_next(
    status: int, wants_credentials: bool, is_another_transport: bool
) -> None:
    """A user would not learn that a token is missing, or an old server would never be tried the old way."""
    telltale = Telltale()
    await telltale.listen(httpx2.Response(status))
    assert telltale.status == (status if status >= 400 else None)
    assert telltale.wants_credentials is wants_credentials
    assert telltale.is_another_transport is is_another_transport


async def test_a_good_answer_does_not_hide_the_bad_one_before() -> None:
    """The reason would be gone by the time somebody asks."""
    telltale = Telltale()
    await telltale.listen(httpx2.Response(401))
    await telltale.listen(httpx2.Response(200))
    assert telltale.status == 401


async def test_dialling_streamable_http_sends_nothing() -> None:
    """A server would be asked before anybody is ready to hear its answer."""
    config = StreamableHttpServerConfig(id="a", url="http://127.0.0.1:9/mcp")
    telltale = Telltale()
    async with dial(config, telltale, legacy=False) as (read, write):
        assert read is not write
    assert telltale.status is None


async def test_a_legacy_server_that_does_not_listen_is_an_error_at_once() -> None:
    """A wrong port would be tried until the deadline."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        config = SseServerConfig(id="a", url=f"http://127.0.0.1:{reserved.getsockname()[1]}/sse")
        with pytest.raises(httpx2.ConnectError):
            async with dial(config, Telltale(), legacy=True):
                pass
