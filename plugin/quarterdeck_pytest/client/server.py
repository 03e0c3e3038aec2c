"""A server under test: its clients, the faults that can be injected, and the assertions on it."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Final

import msgspec

from quarterdeck_protocol.faults import FaultRecord, ProtocolFault
from quarterdeck_protocol.names import QUALIFIER
from quarterdeck_protocol.schema.providers.outside import outside
from quarterdeck_protocol.schema.providers.subsets import Provider
from quarterdeck_pytest.messages import Explanation, ServerView
from quarterdeck_pytest.options import ERAS

from .answers import Answers
from .backends import Backend
from .clients import AsyncMcpClient, McpClient
from .pending import McpTestError
from .requests import Requests

__tracebackhide__ = True  # in tracebacks, so that they end at the line of the test

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Story:
    """For a failed test's report: its state and last messages, how many came before, kinds of unanswered questions."""

    found: Explanation
    left_out: int = 0
    unanswered: tuple[str, ...] = ()


class McpServer:
    """One server under test, as `mcp_server(…)` returns it, with its `id`."""

    def __init__(
        self,
        backend: Backend,
        in_era: "Callable[[str], McpServer] | None" = None,
        *,
        answers: Mapping[str, object] | None = None,
        since: int = 0,
    ) -> None:
        """Prepare the test's requests: `backend` reaches the server, `in_era` returns it in another revision, None
        where that is impossible; `since` notifications belong to earlier tests.
        """
        self._backend: Final = backend
        self._in_era: Final = in_era
        self.id: Final = backend.id
        self._requests: Final = Requests(backend, Answers(answers), since)

    def client(self) -> McpClient:
        """Return a client for plain tests."""
        return McpClient(self._requests)

    def async_client(self) -> AsyncMcpClient:
        """Return a client for coroutines."""
        return AsyncMcpClient(self._requests)

    def leave(self) -> None:
        """End the test's subscriptions."""
        self._requests.leave()

    @property
    def status(self) -> ServerView:
        """Its state: `phase`, `fault`, `pid`, `era`, `restarts`, and its confinement."""
        return self._backend.view().result()

    @property
    def stderr(self) -> str:
        """The end of its standard error, without secrets; empty for an object."""
        return self._backend.explain(()).result().stderr

    def is_same(self, other: "McpServer") -> bool:
        """Return whether it is the same server, and not another that runs the same."""
        return (self.id, self._backend.key) == (other.id, other._backend.key)  # noqa: SLF001 - of its own kind

    @property
    def last_fault(self) -> FaultRecord | None:
        """Its last death, with its dossier, even if it serves again; None if it has not died."""
        return self._backend.explain(()).result().last_fault

    def explain(self, within_s: float) -> "Story":
        """Return the facts for a failure's report, without secrets."""
        messages, left_out = self._requests.last_messages
        found = self._backend.explain(messages).result(within_s)
        return Story(found, left_out, tuple(self._requests.answers.unanswered))

    def tool_snapshot(self) -> str:
        """Return its tools as text for comparison: sorted by name, a member a line, so that a difference is short."""
        return snapshot_of(self.client().list_tools())

    # What can be done to it

    def kill(self) -> None:
        """Kill its process; returns when that was noticed. It is restarted, as it is in use."""
        self._backend.injure("kill").result()

    def stop(self) -> None:
        """Suspend its processes: it neither reads nor answers until `resume`."""
        self._backend.injure("stop").result()

    def resume(self) -> None:
        """Resume its suspended processes."""
        self._backend.injure("resume").result()

    def hang_next_call(self) -> None:
        """Suspend it during the next call, which ends by its timeout."""
        self._backend.injure("hang_next_call").result()

    def garbage(self) -> None:
        """Write a line into its output that is neither JSON nor UTF-8."""
        self._backend.injure("junk", 0).result()

    def flood(self, mib: float = 16) -> None:
        """Write so many MiB of such lines into its output."""
        self._backend.injure("junk", mib * MIB).result()

    def slow_start(self, seconds: float) -> None:
        """Restart it, and suspend its process for so long right after its start. Returns when it is resumed."""
        self._backend.injure("slow_start", seconds).result()

    def drop_connection(self) -> None:
        """Kill the worker that holds the other ends of its pipes; returns when that was noticed."""
        self._backend.injure("drop_connection").result()

    # What can be asserted of it

    def assert_fails_within(
        self, seconds: float, tool: str, arguments: Mapping[str, object] | None = None, *, timeout: float | None = None
    ) -> ProtocolFault:
        """Call a tool, which must end without a result in this time, and return its fault.

        `timeout` is the call's own, seconds.
        """
        pending = self._requests.call_tool(tool, arguments, timeout)
        try:
            result = pending.result(seconds)
        except ProtocolFault as fault:
            return fault
        except TimeoutError:
            raise AssertionError(f"{self.id}: {tool} has neither failed nor answered within {seconds:g} s") from None
        raise AssertionError(f"{self.id}: {tool} answered, where it should have failed: {result.text[:500]!r}")

    def assert_recovers_within(self, seconds: float) -> None:
        """Wait until it is ready (again), in this time."""
        try:
            self._backend.recovered().result(seconds)
        except TimeoutError:
            view = self.status
            why = f": {view.fault.message}" if view.fault is not None else ""
            raise AssertionError(f"{self.id} is not ready within {seconds:g} s, but {view.phase}{why}") from None

    def assert_same_tools(self, eras: Sequence[str] = ERAS) -> None:
        """Compare its tools in each of these revisions."""
        if self._in_era is None:
            raise McpTestError("the eras of a server can be compared where mcp_server made it, not within a deck")
        found = {era: self._in_era(era).tool_snapshot() for era in eras}
        first, *others = eras
        for era in others:
            _assert_equal(
                f"{self.id} offers other tools in {era} than in {first}", found[first], found[era], (first, era)
            )

    def assert_schema_portable(self, for_: Sequence[str] = ("openai", "gemini", "anthropic")) -> None:
        """Check the input schemas of all its tools against these model providers, in the form that clients send."""
        problems = list(unportable(self.client().list_tools(), for_))
        if problems:
            raise AssertionError("\n".join((f"{self.id} has schemas that a model provider does not take:", *problems)))

    def assert_deck_unchanged(self, lock: str | PathLike[str] = "deck.lock") -> None:
        """Compare it with its entry in the lock; the lock's other servers are ignored.

        `lock` is relative to pytest's root directory.
        """
        path = fspath(lock)
        _assert_none(path, [text for server, text in self._backend.compare(path).result() if server == self.id])


class McpDeck:
    """All servers of a configuration, as `mcp_deck` returns them; a tool's name is `server__tool`."""

    def __init__(self, servers: Mapping[str, McpServer], backends: Mapping[str, Backend]) -> None:
        self._servers: Final = dict(servers)
        self._backends: Final = dict(backends)

    @property
    def servers(self) -> dict[str, McpServer]:
        """Each server by id."""
        return dict(self._servers)

    def server(self, name: str) -> McpServer:
        """Return the server of this id."""
        if name not in self._servers:
            raise McpTestError(f"the configuration has no server {name!r}: it has {', '.join(self._servers)}")
        return self._servers[name]

    def call(self, name: str, arguments: Mapping[str, object] | None = None, *, timeout: float | None = None) -> Any:
        """Call `server__tool`; see `McpClient.call_tool`."""
        server, _, tool = name.partition(QUALIFIER)
        return self.server(server).client().call_tool(tool, arguments, timeout=timeout)

    def tools(self) -> list[str]:
        """Return the names of the tools of all servers that are ready, as `call` takes them."""
        ready = [server for server in self._servers.values() if server.status.phase == "ready"]
        return [f"{server.id}{QUALIFIER}{tool['name']}" for server in ready for tool in server.client().list_tools()]

    def assert_deck_unchanged(self, lock: str | PathLike[str] = "deck.lock") -> None:
        """Compare all servers with the lock, which must have no others; see `McpServer`."""
        path = fspath(lock)
        if not self._backends:
            raise McpTestError("the configuration has no servers, so that nothing can be compared with a lock")
        backend = next(iter(self._backends.values()))
        _assert_none(path, [text for _, text in backend.compare(path).result()])


def snapshot_of(tools: Iterable[Mapping[str, object]]) -> str:
    """Return definitions as text, sorted by name and member."""
    by_name = sorted(tools, key=lambda tool: str(tool.get("name")))
    lines = (msgspec.json.format(msgspec.json.encode(tool, order="sorted"), indent=2).decode() for tool in by_name)
    return "\n".join((*lines, ""))


def unportable(tools: Iterable[Mapping[str, object]], providers: Iterable[str]) -> Iterator[str]:
    """Yield a line for each part of an input schema that a provider refuses. Raise `McpTestError` for an unknown."""
    wanted = list(providers)
    for name in wanted:
        if name not in tuple(Provider):
            raise McpTestError(f"there is no provider {name!r}: known are {', '.join(Provider)}")
    for tool in tools:
        for name in wanted:
            for found in outside(tool.get("inputSchema"), Provider(name)):
                if found.is_mended_by_clients:
                    continue
                place = ".".join(found.steps) or "the schema itself"
                yield f"{name}: {tool.get('name')}: {place}: {found.rule.words}"


def _assert_equal(what: str, old: str, new: str, names: tuple[str, str]) -> None:
    if old != new:
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), *names, lineterm="")
        raise AssertionError("\n".join((f"{what}:", *lines)))


def _assert_none(lock: str, differences: Sequence[str]) -> None:
    if differences:
        what = "if that is right, approve it and run quarterdeck lock"
        head = f"what is offered (+) is not what {lock} names (-); {what}:"
        raise AssertionError("\n".join((head, *differences)))
