"""Start `quarterdeck serve` over echo servers, and see how long it takes and what it costs until all is listed."""

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from support.clients.raw_client import RawStdioClient
from support.config.places import row, write_config
from support.processes.commands import command, quarterdeck_json
from support.waiting import eventually

from quarterdeck.daemon.client import ask_daemon
from quarterdeck.daemon.messages import Order
from quarterdeck.daemon.place import daemon_dir

from .peers import ECHO, TEXT
from .process_tree import Costs, Role, costs_of, process_of

PATIENCE_S: Final = 900.0
"""For hundreds of servers on a busy machine, or ten packages that are installed first."""

WAIT_S: Final = "840"
"""How long the first list may wait for all servers, seconds: it is to have all."""

RESTED_S: Final = 5.0
"""After a start, until nothing of it goes on: what hundreds of servers list is scanned then."""


Rows = Mapping[str, Mapping[str, Any]]
"""Of a configuration file, by the servers' ids."""


class Daemon(StrEnum):
    """Which process serves the client."""

    NONE = "serve --own"
    UP = "a daemon that is up"
    STARTED = "a daemon that serve starts"


def server_id(number: int) -> str:
    return f"s{number}"


def echoes(count: int, start: str = "at_once") -> Rows:
    return {server_id(number): row(ECHO, start=start) for number in range(count)}


def bare(rows: Rows) -> Rows:
    """Their command lines alone, which other programs read as well."""
    return {name: {key: each[key] for key in ("command", "args")} for name, each in rows.items()}


@dataclass(frozen=True, slots=True)
class Start:
    """One start.

    Attributes:
        greeted_s: from the client's start of the command to its answer to `initialize`.
        listed_s: to a list of tools that has every server's.
        costs: what all of it had cost then.
    """

    greeted_s: float
    listed_s: float
    costs: Costs


class Serving:
    """A `serve` over so many servers, its client greeted, every tool listed."""

    def __init__(self, client: RawStdioClient, supervisor: int, count: int, start_s: tuple[float, float]) -> None:
        self.client = client
        self.supervisor = supervisor
        self.count = count
        self._doors = () if client.pid == supervisor else (client.pid,)
        self.start = Start(*start_s, self.costs())

    def costs(self) -> Costs:
        """What the supervisor and all below it cost now, and the client's door."""
        return costs_of(self.supervisor, *self._doors, with_memory=True)

    def lose_zygote(self) -> float:
        """Seconds from the zygote's death until every server has answered a call again."""
        zygote = process_of(self.supervisor, Role.ZYGOTE)
        before = {child.pid for child in psutil.Process(zygote).children(recursive=True)}
        began = time.perf_counter()
        os.kill(zygote, signal.SIGKILL)
        # A call of one that is not lost yet would be answered by nobody.
        eventually(lambda: not any(map(psutil.pid_exists, before)), PATIENCE_S, "the workers' end")
        waiting = set(range(self.count))
        while waiting:
            asked = {number: self._ask(number) for number in sorted(waiting)}
            for number, request in asked.items():
                if "content" in (found := self.client.reply(request).get("result", {})) and not found.get("isError"):
                    waiting.discard(number)
        return time.perf_counter() - began

    def idle(self, lasting_s: float) -> Costs:
        """What all of it costs in so many seconds in which nobody asks anything."""
        time.sleep(RESTED_S)
        before = costs_of(self.supervisor, *self._doors)
        time.sleep(lasting_s)
        return costs_of(self.supervisor, *self._doors).since(before)

    def rest(self, lasting_s: float) -> None:
        time.sleep(lasting_s)

    def change_tools(self) -> None:
        """Have the first server change its tools; what is new of them is held, so that the client hears nothing."""
        self.client.call(f"{server_id(0)}__change")

    def call_s(self, server: str, tool: str = ECHO, **arguments: str) -> float:
        """Seconds until this server has answered a call."""
        began = time.perf_counter()
        found = self.client.call(f"{server}__{tool}", None, **arguments)
        assert not found.get("isError"), found
        return time.perf_counter() - began

    def _ask(self, number: int) -> int | str:
        return self.client.send("tools/call", {"name": f"{server_id(number)}__{ECHO}", "arguments": {"text": TEXT}})


@contextmanager
def serving(folder: Path, rows: Rows, daemon: Daemon = Daemon.NONE) -> Iterator[Serving]:
    """A `serve` over these servers, of a state directory in `folder`."""
    with ExitStack() as stack:
        places = {"QUARTERDECK_STATE_DIR": str(folder / "state"), "QUARTERDECK_RUNTIME_DIR": str(folder / "run")}
        environ = {name: value for name, value in os.environ.items() if name != "QUARTERDECK_OWN"} | places
        words = command("serve", "--config", str(write_config(folder / "servers.json", **rows)), "--settle", WAIT_S)
        if daemon is Daemon.NONE:
            words.append("--own")
        else:
            stack.enter_context(_daemon(places, is_up=daemon is Daemon.UP))
        client, start_s = _listed(stack, words, environ, folder, rows)
        supervisor = client.pid if daemon is Daemon.NONE else ask_daemon(daemon_dir(), Order.STATUS).pid
        yield Serving(client, supervisor, len(rows), start_s)


def listed_by(words: Sequence[str], folder: Path, rows: Rows) -> float:
    """Seconds until another program, started by this command line, has listed all tools."""
    with ExitStack() as stack:
        return _listed(stack, words, dict(os.environ), folder, rows)[1][1]


def _listed(
    stack: ExitStack, words: Sequence[str], environ: dict[str, str], folder: Path, rows: Rows
) -> tuple[RawStdioClient, tuple[float, float]]:
    began = time.perf_counter()
    client = stack.enter_context(RawStdioClient(words, env=environ, cwd=folder, deadline_s=PATIENCE_S))
    client.initialize()
    greeted_s = time.perf_counter() - began
    tools = client.list_tools()
    listed_s = time.perf_counter() - began
    # FastMCP has no prefix for a server that is alone.
    prefixes = {each: f"{each}_" if len(rows) > 1 else "" for each in rows}
    lacking = [each for each, prefix in prefixes.items() if not any(tool["name"].startswith(prefix) for tool in tools)]
    assert not lacking, f"the first list has nothing of {lacking}: {client.stderr_text()}"
    return client, (greeted_s, listed_s)


@contextmanager
def _daemon(places: dict[str, str], *, is_up: bool) -> Iterator[None]:
    """End the daemon of these places with the block; start it before, with nothing to serve yet, if it `is_up`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("QUARTERDECK_OWN", raising=False)
        for name, value in places.items():
            patch.setenv(name, value)
        if is_up:
            quarterdeck_json("up")
        try:
            yield
        finally:
            quarterdeck_json("down")
