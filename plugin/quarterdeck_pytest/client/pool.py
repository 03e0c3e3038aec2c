"""The servers of one test process, by scope: started on request, stopped when their scope ends."""

import json
import shutil
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from quarterdeck_protocol.faults import FaultRecord, ProtocolFault
from quarterdeck_pytest.activation import RunAddress
from quarterdeck_pytest.messages import Close, Failed, Open, Reply, ServerView, Wish, fault_of
from quarterdeck_pytest.options import Mark, Options

from .backends import Backend, value_of
from .connection import Connection
from .objects import LoopThread, ObjectServer
from .pending import McpTestError, Pending
from .server import McpDeck, McpServer

__tracebackhide__ = True  # in tracebacks, so that they end at the line of the test

START_SLACK_S: Final = 120.0
"""Beyond the timeout of a start: other tests' turns, and the supervisor's own start on a busy machine."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A test's request for servers: its marker merged with the call's arguments, and its directory's configuration.

    `config` is a file, its content, or None; a command runs in `root`, and may read it; `test` is a node id, and
    `note_failed` receives a server that does not start.
    """

    mark: Mark
    era: str
    config: Path | Mapping[str, object] | None
    root: Path
    test: str
    answers: Mapping[str, object]
    note_failed: "Callable[[McpServer], None]"


class Scope:
    """Servers that are stopped together: a test's, a module's, a session's; those of the whole run are never."""

    def __init__(self, pool: "Pool", name: str) -> None:
        self._pool = pool
        self._name = name
        self._keys: dict[str, str] = {}
        self._objects: dict[tuple[int, str], ObjectServer] = {}
        self._met: set[tuple[str, str]] = set()

    def server(self, asked: Asked) -> McpServer:
        """Return the requested server; the same process for all equal requests in this scope.

        Raise `McpTestError` if there is no such server, `ProtocolFault` if it does not start.
        """
        what = asked.mark.server
        if what is None:
            what = _only_server(self._pool.file_of(asked))
        if _is_object(what):
            return self._object(what, asked)
        wish = self._pool.wish(what, asked)

        def in_era(era: str) -> McpServer:
            wanted = msgspec.structs.replace(wish, era=era)
            [view] = self._open(wanted, asked)
            server = self._found(wanted, view.id, asked, in_era)
            if view.fault is not None and view.phase != "ready":
                asked.note_failed(server)
                raise _start_fault(view)
            return server

        return in_era(wish.era)

    def deck(self, asked: Asked) -> McpDeck:
        """Return all servers of the configuration; those that do not start are included, faulted."""
        wish = self._pool.wish(None, asked)
        servers = {view.id: self._found(wish, view.id, asked) for view in self._open(wish, asked)}
        key = self._keys[wish.digest]
        backends = {name: Backend(self._pool.connection, key, name, asked.root) for name in servers}
        return McpDeck(servers, backends)

    def close(self) -> list[str]:
        """Stop the servers. Return one line for each leftover."""
        objects, self._objects = list(self._objects.values()), {}
        for each in objects:
            each.close()
        keys, self._keys = list(self._keys.values()), {}
        if self._name == "run":
            return []
        connection = self._pool.connection if keys else None
        left: list[str] = []
        for key in keys:
            assert connection is not None
            left += value_of(list[str], connection.send(Close(connection.next_id(), key)).result())
            connection.forget(key)
        return left

    def _found(
        self, wish: Wish, server: str, asked: Asked, in_era: "Callable[[str], McpServer] | None" = None
    ) -> McpServer:
        """Return a server that was opened, for this test: notifications before it are not its own."""
        key = self._keys[wish.digest]
        backend = Backend(self._pool.connection, key, server, asked.root)
        since = backend.told.count if (key, server) in self._met else 0
        self._met.add((key, server))
        return McpServer(backend, in_era, answers=asked.answers, since=since)

    def _open(self, wish: Wish, asked: Asked) -> list[ServerView]:
        shared = self._name == "run"
        key = self._keys.setdefault(wish.digest, f"run-{wish.digest}" if shared else uuid.uuid4().hex)
        connection = self._pool.connection
        request = Open(connection.next_id(), key, wish, asked.test, shared)
        try:
            reply = Pending(connection.send(request), _same).result((wish.timeout_s or 0.0) + START_SLACK_S)
        except BaseException:
            del self._keys[wish.digest]
            raise
        return value_of(list[ServerView], reply)

    def _object(self, what: object, asked: Asked) -> McpServer:
        if self._name == "run":
            raise McpTestError('scope="run" shares a process, and this server is an object: give its command')
        if asked.mark.env:
            raise McpTestError("env is for a server that is a process, and this one is an object: use monkeypatch")

        def in_era(era: str) -> McpServer:
            place, is_new = (id(what), era), (id(what), era) not in self._objects
            if is_new:
                timeout_s = self._pool.timeout_of(asked.mark)
                self._objects[place] = ObjectServer(self._pool.loop_thread, what, era, timeout_s)
            link = self._objects[place]
            backend = Backend(link, f"object-{id(link)}", ObjectServer.id, asked.root)
            since = 0 if is_new else backend.told.count
            return McpServer(backend, in_era, answers=asked.answers, since=since)

        return in_era(asked.era)


class Pool:
    """A test process's servers, and its one connection to the run's supervisor, made at first use."""

    def __init__(self, address: RunAddress, options: Options, worker: str) -> None:
        self._address = address
        self._options = options
        self._worker = worker
        self._connection: Connection | None = None
        self._thread: LoopThread | None = None
        self.run: Final = Scope(self, "run")

    @property
    def connection(self) -> Connection:
        """The connection."""
        if self._connection is None:
            self._connection = Connection(self._address, self._worker)
        return self._connection

    @property
    def loop_thread(self) -> LoopThread:
        """The loop of servers that are objects."""
        if self._thread is None:
            self._thread = LoopThread()
        return self._thread

    def close(self) -> None:
        """Hang up, which stops the servers of this process alone."""
        if self._connection is not None:
            self._connection.close()
        if self._thread is not None:
            self._thread.close()

    def timeout_of(self, mark: Mark) -> float:
        """Return the seconds that a start, and a call, may take."""
        return mark.timeout if mark.timeout is not None else self._options.timeout_s

    def file_of(self, asked: Asked) -> Path:
        """Return the configuration file; a value is written into the run's folder. Raise `McpTestError` without any."""
        match asked.config:
            case None:
                raise McpTestError(
                    f"there is no mcp.json or .mcp.json in pytest's root directory, {asked.root}: write one there, "
                    "name one with --mcp-config, or override the fixture mcp_config"
                )
            case Mapping():
                text = json.dumps(asked.config, default=str)
                path = Path(self._address.folder, uuid.uuid5(uuid.NAMESPACE_OID, text).hex[:8], "mcp_config.json")
                if not path.exists():
                    path.parent.mkdir(exist_ok=True)
                    # As a whole: another worker of xdist may have the supervisor read it meanwhile.
                    own = path.with_suffix(f".{uuid.uuid4().hex}")
                    own.write_text(text, encoding="utf-8")
                    own.replace(path)
                return path
            case _ if not asked.config.exists():
                raise McpTestError(f"there is no configuration file {asked.config}: correct --mcp-config or mcp_config")
            case _:
                return asked.config

    def wish(self, what: Any, asked: Asked) -> Wish:
        """Return the supervisor's form of a request; None stands for all servers. Raise `McpTestError`."""
        policy = asked.mark.policy
        common = Wish(
            policy=msgspec.json.encode({"preset": policy} if isinstance(policy, str) else dict(policy))
            if policy
            else b"",
            env=tuple(sorted((asked.mark.env or {}).items())),
            network=self._options.network,
            era=asked.era,
            timeout_s=self.timeout_of(asked.mark),
        )
        match what:
            case None:
                return msgspec.structs.replace(common, file=str(self.file_of(asked)))
            case str():
                return msgspec.structs.replace(common, file=str(self.file_of(asked)), server=what)
            case _:
                words = tuple(map(str, what))
                if not words:
                    raise McpTestError("mcp_server was given an empty command")
                return msgspec.structs.replace(common, words=_found(words), cwd=str(asked.root))


def _is_object(what: object) -> bool:
    return not (isinstance(what, str) or (isinstance(what, Sequence) and not isinstance(what, bytes)))


def _found(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command by its path: a server's search path lacks the programs of a virtual environment."""
    if words[0] in {"python", "python3"}:
        return (sys.executable, *words[1:])
    beside = Path(sys.executable).parent / words[0]
    program = str(beside) if "/" not in words[0] and beside.exists() else shutil.which(words[0]) or words[0]
    return (program, *words[1:])


def _only_server(file: Path) -> str:
    """Return the one server of a file. Raise `McpTestError` if it has none, or several."""
    from quarterdeck.config.load.file import ConfigFileError
    from quarterdeck.config.settings import Settings

    try:
        ids = Settings.load([file]).ids
    except ConfigFileError as error:
        raise McpTestError(str(error)) from None
    if len(ids) != 1:
        listed = ", ".join(ids)
        raise McpTestError(
            f"which server? {file} has {listed or 'none'}: mark the test with @pytest.mark.mcp(server=…), or give "
            "mcp_server its id"
        )
    return ids[0]


def _same(reply: Reply) -> Reply:
    return reply


def _start_fault(view: ServerView) -> ProtocolFault:
    assert isinstance(view.fault, FaultRecord)
    return fault_of(Failed(0, view.fault, view.remedy, view.id))
