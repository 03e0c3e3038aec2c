"""The fixtures. They import the product when a test requests them."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .options import Mark, read_mark
from .state import SERVERS, SESSION, McpLeakWarning, Session

if TYPE_CHECKING:
    from .client.clients import AsyncMcpClient, McpClient
    from .client.pool import Asked, Scope
    from .client.server import McpDeck, McpServer

Config = str | os.PathLike[str] | Mapping[str, object] | None


@pytest.fixture(scope="session")
def mcp_config(pytestconfig: pytest.Config) -> Config:
    """The configuration of the servers: a path, or its content; override it to give another."""
    return pytestconfig.stash[SESSION].options.config


@pytest.fixture
def mcp_answers() -> Mapping[str, object]:
    """The answers to servers' questions, `elicitation`, `sampling` or `roots` of `McpClient.answer`; override it."""
    return {}


@pytest.fixture
def mcp_era(request: pytest.FixtureRequest) -> str:
    """The revision of MCP for this test's servers; empty for the legacy one, if the server speaks it."""
    return str(getattr(request, "param", ""))


@pytest.fixture
def mcp_server(
    request: pytest.FixtureRequest, mcp_config: Config, mcp_era: str, mcp_answers: Mapping[str, object]
) -> "Iterator[Callable[..., McpServer]]":
    """Start a server: `mcp_server("id")`, `mcp_server([command, …])`, `mcp_server(object)`; alone, the marker's."""
    marked = _mark_of(request)
    scopes = _Scopes(request)

    def start(server: Any = None, **said: Any) -> "McpServer":
        __tracebackhide__ = True
        if said.get("era") == "both":
            raise pytest.UsageError('mcp_server: era="both" makes two tests: say it in the marker')
        given = read_mark([(() if server is None else (server,), said), marked.said])
        scope = scopes.of(given)
        found = scope.server(_asked(request, given, said.get("era") or mcp_era, mcp_config, mcp_answers))
        used = _used_by(request)
        # Whoever asks again has what the test has seen of it so far, and what it answers.
        if (same := next(filter(found.is_same, used), None)) is not None:
            return same
        used.append(found)
        return found

    yield start
    _leave(request)
    scopes.close()


@pytest.fixture
def mcp_client(mcp_server: "Callable[..., McpServer]") -> "McpClient":
    """A client of the marker's server, or of the configuration's only one, for tests without a loop."""
    with _without_traceback():
        return mcp_server().client()


@pytest.fixture
def mcp_async_client(mcp_server: "Callable[..., McpServer]") -> "AsyncMcpClient":
    """A client for coroutines, under every plugin that runs them on asyncio."""
    with _without_traceback():
        return mcp_server().async_client()


@pytest.fixture
def mcp_deck(
    request: pytest.FixtureRequest, mcp_config: Config, mcp_era: str, mcp_answers: Mapping[str, object]
) -> "Iterator[McpDeck]":
    """All servers of the configuration."""
    marked = _mark_of(request)
    scopes = _Scopes(request)
    with _without_traceback():
        deck = scopes.of(marked).deck(_asked(request, marked, mcp_era, mcp_config, mcp_answers))
    _used_by(request).extend(deck.servers.values())
    yield deck
    _leave(request)
    scopes.close()


@pytest.fixture(scope="session")
def _mcp_session_scope(pytestconfig: pytest.Config) -> "Iterator[Scope]":
    yield from _scope(pytestconfig, "session")


@pytest.fixture(scope="module")
def _mcp_module_scope(pytestconfig: pytest.Config) -> "Iterator[Scope]":
    yield from _scope(pytestconfig, "module")


class _Scopes:
    """The scopes of a test's servers."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._own: Scope | None = None

    def of(self, mark: Mark) -> "Scope":
        """Return the scope of this name; the test's own where none is named."""
        session = self._request.config.stash[SESSION]
        match mark.scope:
            case "run":
                return session.open_pool(_worker_of(self._request.config)).run
            case "module" | "session":
                found: Scope = self._request.getfixturevalue(f"_mcp_{mark.scope}_scope")
                return found
        if self._own is None:
            self._own = _new_scope(self._request.config, "test")
        return self._own

    def close(self) -> None:
        """Stop the test's own servers."""
        if self._own is not None:
            _close(self._request.config, self._own, f"{self._request.node.nodeid} left")


def _scope(config: pytest.Config, name: str) -> "Iterator[Scope]":
    scope = _new_scope(config, name)
    yield scope
    _close(config, scope, f"the servers of scope {name!r} left")


def _new_scope(config: pytest.Config, name: str) -> "Scope":
    from .client.pool import Scope

    return Scope(config.stash[SESSION].open_pool(_worker_of(config)), name)


def _close(config: pytest.Config, scope: "Scope", whose: str) -> None:
    """Stop the servers of a scope; a leftover fails the test whose scope ends."""
    left = [f"{whose} {what}" for what in scope.close()]
    gate = config.stash[SESSION].options.leaks
    if left and gate == "error":
        pytest.fail("\n".join(left), pytrace=False)
    elif left and gate == "warn":
        warnings.warn(McpLeakWarning("; ".join(left)), stacklevel=2)


@contextmanager
def _without_traceback() -> Iterator[None]:
    """Report a test's mistake in its one sentence, within a block without a line of the user's."""
    from .client.pending import McpTestError

    try:
        yield
    except (McpTestError, pytest.UsageError) as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


def _leave(request: pytest.FixtureRequest) -> None:
    """Release the servers of this test for others."""
    for server in _used_by(request):
        server.leave()


def _used_by(request: pytest.FixtureRequest) -> "list[McpServer]":
    servers: list[McpServer] = request.node.stash.setdefault(SERVERS, [])
    return servers


def _mark_of(request: pytest.FixtureRequest) -> Mark:
    return read_mark((mark.args, mark.kwargs) for mark in request.node.iter_markers("mcp"))


def _asked(
    request: pytest.FixtureRequest, mark: Mark, era: str, config: Config, answers: Mapping[str, object]
) -> "Asked":
    from .client.pool import Asked

    session: Session = request.config.stash[SESSION]
    if (watch := session.open_watch()) is not None:
        watch.begin(request.node.nodeid)
    place = Path(config) if isinstance(config, (str, os.PathLike)) else config
    return Asked(
        mark=replace(mark, era=None),
        era=era,
        config=place,
        root=request.config.rootpath,
        test=request.node.nodeid,
        answers=answers,
        note_failed=_used_by(request).append,
    )


def _worker_of(config: pytest.Config) -> str:
    """Return this process's name among xdist's; `main` without xdist."""
    worker: dict[str, str] = getattr(config, "workerinput", {})
    return str(worker.get("workerid", "main"))
