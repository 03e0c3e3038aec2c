"""The servers of a run: each instance is a fleet of its own, with directories of its own."""

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck.common.watchers import wait_until
from quarterdeck.common.words import printable
from quarterdeck.config.places.paths import server_paths
from quarterdeck.config.secrets.masking import secrets_of
from quarterdeck.interop import ServerEndpointImpl, ServerFleetImpl, create_server_endpoint
from quarterdeck.trust.judge.documents import listed_documents
from quarterdeck.trust.lock_files import LockFileError, load_lock
from quarterdeck.trust.server_state import lists_of
from quarterdeck_protocol.configs import BridgeConfig, ServerConfig, StdioServerConfig
from quarterdeck_protocol.contract import EndpointPhase, EndpointStatus
from quarterdeck_protocol.faults import FaultKind, FaultRecord, ProtocolFault
from quarterdeck_protocol.mcp.client import is_modern
from quarterdeck_protocol.names import did_you_mean
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.secrets import Redactor
from quarterdeck_protocol.tools import Client
from quarterdeck_pytest.endpoints import answer, ask, era_of
from quarterdeck_pytest.messages import Ask, Explanation, OfEndpoint, Reply, ServerView, Wish, record_of
from quarterdeck_pytest.relay import Relay

from . import injuries
from .drifts import told_drifts
from .hearing import Tell, hear
from .server_processes import describe_process, processes_left, processes_of, watch_ends
from .wishes import WishError, wished

STDERR_BYTES: Final = 8 * 1024  # of a server's standard error in a report


class Instance:
    """Servers that run for one test, one module, one session or, `shared`, beyond the connection that opened it.

    `test` is the first one that uses it; `digest` names the folder of its servers' homes.
    """

    def __init__(self, key: str, wish: Wish, test: str, *, shared: bool) -> None:
        """Start nothing yet. Raise `WishError` for an impossible wish."""
        found = wished(wish, os.environ)
        settings = found.settings
        self.test: Final = test
        self.shared: Final = shared
        self.digest: Final = hashlib.sha256(key.encode()).hexdigest()[:12]
        self._servers: Final = {config.id: config for config in found.servers}
        self._broken: Final = {row.id: row for row in settings.broken} if not wish.server else {}
        self._redactor: Final = Redactor((*settings.secrets, *frozenset().union(*map(secrets_of, found.servers))))
        self._fleet: Final = ServerFleetImpl(
            partial(
                create_server_endpoint,
                secrets_of=settings.secrets_of,
                environ=settings.environ,
                trusted=lambda: settings.trusted,
                digest=self.digest,
            )
        )
        self._hangs: set[str] = set()

    async def start(self) -> None:
        """Start the servers, and wait until each is ready or has failed."""
        await self._fleet.start(BridgeConfig(servers=tuple(self._servers.values())))

    async def close(self) -> list[str]:
        """Stop the servers. Return one line for each process that outlived its server or sandbox."""
        processes = processes_of(self._fleet.status().values())
        watches = watch_ends(self._fleet.status().values())
        outliving = asyncio.gather(*(watch.outlived() for watch in watches))
        _, outlived = await asyncio.gather(self._fleet.tear_down(), outliving)
        homes = server_paths(self.digest, "each").home.parents[1]
        left = await asyncio.to_thread(processes_left, processes, homes)
        return [
            *(line for lines in outlived for line in lines),
            *(f"{describe_process(process)} of a server that was stopped" for process in left),
        ]

    # What is asked of it

    def views(self) -> list[ServerView]:
        """Return its servers, those that cannot be started last."""
        ready = [self._view(status) for status in self._fleet.status().values()]
        broken = [
            ServerView(row.id, EndpointPhase.FAULTED, fault=_broken(row.message, row.code), remedy=row.remedy)
            for row in self._broken.values()
        ]
        return ready + broken

    async def ask(self, request: Ask, client: Client, relay: Relay) -> Reply:
        """Call a tool or make another request. Raise `ProtocolFault` and `WishError`."""
        endpoint = self._endpoint(request.server)
        # Of a legacy server's question nothing says which test it belongs to.
        if self.shared and request.takes.capabilities and not is_modern(endpoint.status().era or ""):
            raise WishError(
                f"{request.server} asks in a way that does not say whom, and other tests share it: use a narrower "
                'scope than "run" for a test that answers, or era="2026-07-28"'
            )
        hangs = bool(request.tool) and request.server in self._hangs
        self._hangs.difference_update({request.server} if hangs else ())
        with injuries.stopped(self._fleet, request.server) if hangs else nullcontext():
            return await ask(endpoint, request, client, relay)

    async def answer(self, request: OfEndpoint, client: Client) -> Reply:
        """Answer a request that needs the server's endpoint alone. Raise `ProtocolFault` and `WishError`."""
        return await answer(self._endpoint(request.server), request, client)

    def era_of(self, server: str) -> str:
        """Return the revision that a server speaks; empty before the handshake. Raise `WishError`."""
        return era_of(self._endpoint(server))

    def hear(self, client: Client, tell: Tell) -> Callable[[], None]:
        """Forward its servers' notifications. Return the function that ends that."""
        return hear(self._fleet, client, tell)

    async def injure(self, server: str, how: str, amount: float) -> None:
        """Inject a fault into a server. Raise `WishError`."""
        self._endpoint(server)
        match how:
            case "kill":
                await injuries.kill(self._fleet, server)
            case "drop_connection":
                await injuries.drop_connection(self._fleet, server)
            case "stop":
                injuries.stop(self._fleet, server)
            case "resume":
                injuries.resume(self._fleet, server)
            case "hang_next_call":
                injuries.running(self._fleet, server)
                self._hangs.add(server)
            case "junk":
                await injuries.write_junk(self._fleet, server, int(amount))
            case "slow_start":
                injuries.running(self._fleet, server)
                await injuries.start_slowly(self._fleet, server, amount)
            case _:
                raise WishError(f"nobody knows how to do {how!r} to a server")

    async def recovered(self, server: str) -> None:
        """Wait until the server is ready; without end."""
        self._endpoint(server)

        def is_ready() -> bool:
            status = self._fleet.status_of(server)
            return status is not None and status.phase is EndpointPhase.READY and self._fleet.has_settled(server)

        await wait_until(self._watch, is_ready, None)

    def explain(self, server: str, texts: Iterable[str]) -> Explanation:
        """Return the facts about a server for a failure's report. Blocking: a log is read."""
        status = self._fleet.status_of(server)
        if status is None:
            [view] = [view for view in self.views() if view.id == server] or [ServerView(server, "not there")]
            return Explanation(view, tuple(map(self._redactor.clean_text, texts)), "")
        last = self._fleet.last_fault(server)
        stderr = _tail(server_paths(self.digest, server).log)
        return Explanation(
            self._view(status),
            tuple(map(self._redactor.clean_text, texts)),
            self._redactor.clean_text(stderr),
            self.record(last) if last is not None else None,
        )

    def record(self, fault: ProtocolFault) -> FaultRecord:
        """Return a fault's form on the wire, without secrets, and without terminal controls in its message."""
        clean = self._redactor.clean_text
        found = record_of(fault)
        if (dossier := found.dossier) is not None:
            hints = tuple(map(clean, dossier.hints))
            dossier = replace(dossier, stderr_tail=clean(dossier.stderr_tail), hints=hints)
        return replace(found, message=printable(clean(found.message)), dossier=dossier)

    def compare(self, lock: Path) -> list[tuple[str, str]]:
        """Return the differences from a lock: the server, and a text. Blocking. Raise `WishError` for a bad lock."""
        present = {}
        for endpoint in self._fleet.endpoints():
            if endpoint.phase is EndpointPhase.READY:
                lists = lists_of(endpoint)
                present[endpoint.config.id] = listed_documents(
                    lists.instructions,
                    [tool.descriptor.definition or b"null" for tool in lists.tools],
                    {listing: [each.definition for each in offers] for listing, offers in lists.offers.items()},
                    lists.capabilities,
                )
        try:
            found = told_drifts(load_lock(lock), present)
        except LockFileError as error:
            raise WishError(str(error)) from None
        return [(server, self._redactor.clean_text(text)) for server, text in found]

    # Helpers

    def _endpoint(self, server: str) -> ServerEndpointImpl:
        if (row := self._broken.get(server)) is not None:
            raise WishError(f"{row.message}: {row.remedy}")
        endpoint = self._fleet.endpoint(server)
        if endpoint is None:
            hint = did_you_mean(server, self._servers, "its servers")
            raise WishError(f"there is no server {server!r}{hint}")
        return endpoint

    def _view(self, status: EndpointStatus) -> ServerView:
        config, fault, sandbox = self._servers[status.server], status.fault, status.sandbox
        return ServerView(
            id=status.server,
            phase=status.phase,
            tools=status.tool_count,
            fault=self.record(fault) if fault is not None else None,
            remedy=(fault.remedy_for(status.server) or "") if fault is not None else "",
            pid=status.pid,
            worker_pid=status.worker_pid,
            era=status.era or "",
            restarts=status.restarts,
            policy=policy_of(config),
            tier=str(sandbox.tier) if sandbox is not None else "",
            network=sandbox.network if sandbox is not None else "",
            gaps=sandbox.gaps if sandbox is not None else (),
        )

    def _watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        return self._fleet.watch_each(lambda _: callback())


class Instances:
    """All instances of a run, by key."""

    def __init__(self) -> None:
        self._instances: dict[str, Instance] = {}
        self._starts: dict[str, asyncio.Task[None]] = {}

    def begin(self, key: str, wish: Wish, test: str, *, shared: bool) -> Instance:
        """Start an instance, or return the one of a known key. Raise `WishError` for an impossible wish."""
        if key not in self._instances:
            instance = self._instances[key] = Instance(key, wish, test, shared=shared)
            self._starts[key] = asyncio.create_task(instance.start())
        return self._instances[key]

    async def started(self, key: str) -> list[ServerView]:
        """Return the servers of an instance, once each is ready or has failed. Raise `WishError`."""
        # Shielded: others may wait for it, too.
        await asyncio.shield(self._starts[key])
        return self[key].views()

    def __getitem__(self, key: str) -> Instance:
        """Return the instance of this key. Raise `WishError`."""
        if (instance := self._instances.get(key)) is None:
            raise WishError("the server was stopped: its test, its module or its run has ended")
        return instance

    async def close(self, key: str) -> list[str]:
        """Stop an instance, also while it starts. Return one line for each leftover. Harmless for an unknown key."""
        instance, start = self._instances.pop(key, None), self._starts.pop(key, None)
        if instance is None or start is None:
            return []
        left = await instance.close()
        await asyncio.wait((start,))
        return left

    async def aclose(self) -> None:
        """Stop every instance."""
        await asyncio.gather(*(self.close(key) for key in tuple(self._instances)))


def _broken(message: str, code: str) -> FaultRecord:
    return record_of(ProtocolFault.not_sent(FaultKind.SPAWN_FAILED, message, code))


def policy_of(config: ServerConfig) -> bytes:
    """Return its policy: the preset, and the differences from it."""
    if not isinstance(config, StdioServerConfig):
        return b""
    preset = config.sandbox.preset
    usual, own = (each.model_dump(mode="json") for each in (SandboxPolicy(preset=preset), config.sandbox))
    said = {key: value for key, value in own.items() if value != usual[key]}
    if "limits" in said:
        said["limits"] = {key: value for key, value in own["limits"].items() if value != usual["limits"][key]}
    return msgspec.json.encode({"preset": preset.value, **said})


def _tail(log: Path) -> str:
    """Return the end of a log, from the start of a line; empty where there is none."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - STDERR_BYTES))
            text = file.read(STDERR_BYTES)
    except OSError:
        return ""
    if size > STDERR_BYTES:
        text = text.partition(b"\n")[2]
    return text.decode("utf-8", "replace")
