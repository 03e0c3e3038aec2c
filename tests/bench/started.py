"""Start `quarterdeck serve` over echo servers, and see how long it takes and what it costs until all is listed."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pytest
from support.clients.raw_client import RawStdioClient
from support.config.places import row, write_config
from support.processes.commands import command, quarterdeck_json
from support.waiting import eventually

from .peers import ECHO, TEXT
from .process_tree import Costs, Role, costs_of, process_of

PATIENCE_S: Final = 180.0
"""For hundreds of servers on a busy machine."""

WAIT_S: Final = "120"
"""How long the first list may wait for all servers, seconds: it is to have all."""

RESTED_S: Final = 5.0
"""After a start, until nothing of it goes on: what hundreds of servers list is scanned then."""


def server_id(number: int) -> str:
    return f"s{number}"


@dataclass(frozen=True, slots=True)
class Start:
    """One start.

    Attributes:
        greeted_s: from the client's start of the command to its answer to `initialize`.
        listed_s: to a list of tools that has every server's.
        costs: what the supervisor and all below it had cost then.
    """

    greeted_s: float
    listed_s: float
    costs: Costs


class Serving:
    """A `serve` over so many servers, its client greeted, every tool listed."""

    def __init__(self, client: RawStdioClient, supervisor: int, count: int, start: Start) -> None:
        self.client = client
        self.supervisor = supervisor
        self.count = count
        self.start = start

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
        before = costs_of(self.supervisor)
        time.sleep(lasting_s)
        return costs_of(self.supervisor).since(before)

    def rest(self, lasting_s: float) -> None:
        time.sleep(lasting_s)

    def change_tools(self) -> None:
        """Have the first server change its tools; what is new of them is held, so that the client hears nothing."""
        self.client.call(f"{server_id(0)}__change")

    def call_s(self, number: int) -> float:
        """Seconds until this server has answered a call."""
        began = time.perf_counter()
        found = self.client.reply(self._ask(number))
        assert "content" in found["result"], found
        return time.perf_counter() - began

    def _ask(self, number: int) -> int | str:
        return self.client.send("tools/call", {"name": f"{server_id(number)}__{ECHO}", "arguments": {"text": TEXT}})


@contextmanager
def serving(folder: Path, count: int, *, has_daemon: bool = False, start: str = "at_once") -> Iterator[Serving]:
    """A `serve` over so many echo servers, of a state directory in `folder`; `has_daemon`: by a daemon that is up."""
    with ExitStack() as stack:
        places = {"QUARTERDECK_STATE_DIR": str(folder / "state"), "QUARTERDECK_RUNTIME_DIR": str(folder / "run")}
        environ = {name: value for name, value in os.environ.items() if name != "QUARTERDECK_OWN"} | places
        config = write_config(
            folder / "servers.json", **{server_id(number): row(ECHO, start=start) for number in range(count)}
        )
        words = command("serve", "--config", str(config), "--settle", WAIT_S)
        supervisor = stack.enter_context(_daemon(places)) if has_daemon else None
        client, start_s = _listed(stack, words if has_daemon else [*words, "--own"], environ, folder, count)
        supervisor = supervisor or client.pid
        yield Serving(client, supervisor, count, Start(*start_s, costs_of(supervisor, with_memory=True)))


def listed_by(words: Sequence[str], folder: Path, count: int) -> tuple[float, float]:
    """Seconds until another program, started by this command line, has greeted a client, and listed all tools."""
    with ExitStack() as stack:
        return _listed(stack, words, dict(os.environ), folder, count)[1]


def _listed(
    stack: ExitStack, words: Sequence[str], environ: dict[str, str], folder: Path, count: int
) -> tuple[RawStdioClient, tuple[float, float]]:
    began = time.perf_counter()
    client = stack.enter_context(RawStdioClient(words, env=environ, cwd=folder, deadline_s=PATIENCE_S))
    client.initialize()
    greeted_s = time.perf_counter() - began
    tools = client.list_tools()
    listed_s = time.perf_counter() - began
    echoes = sum(tool["name"].endswith(ECHO) for tool in tools)
    assert echoes == count, f"{echoes} of {count} servers are in the first list: {client.stderr_text()}"
    return client, (greeted_s, listed_s)


@contextmanager
def _daemon(places: dict[str, str]) -> Iterator[int]:
    """The process of a daemon that has nothing to serve yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("QUARTERDECK_OWN", raising=False)
        for name, value in places.items():
            patch.setenv(name, value)
        pid: int = quarterdeck_json("up")["pid"]
        try:
            yield pid
        finally:
            quarterdeck_json("down")
