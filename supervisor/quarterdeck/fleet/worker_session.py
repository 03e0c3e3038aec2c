"""Run one server's session, in its own worker as a rule, and say what confines the server.

A session is started once, for one endpoint; its end releases everything.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Final

import msgspec

from quarterdeck.config.environment import server_environment, user_environment
from quarterdeck.config.places.paths import UnsafePathError, quarantine_dir, runtime_dir, server_paths, state_dir
from quarterdeck.config.places.trusted_files import trusted_files, with_announced
from quarterdeck.config.secrets.masking import secrets_of
from quarterdeck_protocol.configs import (
    AskMode,
    ServerConfig,
    SseServerConfig,
    StdioServerConfig,
    StreamableHttpServerConfig,
)
from quarterdeck_protocol.contract import SandboxStatus
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.link.frames import (
    CLOSE_GRACE_S,
    Authorize,
    Open,
    OpenOrder,
    RemoteServer,
    ServerCard,
    ServerStart,
    StdioServer,
)
from quarterdeck_sandbox import ProcessTree, Receipt, Watch

from .access import Access, AccessKeeper
from .sealed_start import Checking, SealedStart, Sealing, start_unsealed
from .workers.handle import WorkerHandle, WorkerListener
from .workers.requests import ask
from .workers.runtime import Runtime

ForClient = Callable[[ServerConfig], Awaitable[tuple[ServerConfig, frozenset[str]]]]
"""Returns a configuration with one client's secrets, and the values put in; may raise `ProtocolFault`."""

EXIT_S = CLOSE_GRACE_S + 1.0
"""Seconds that a worker may take to exit once its server is gone."""


MAX_CAUGHT: Final = 20
"""Quarantined files in a server's status; the log and the quarantine have all of them."""


class ConfinedServer(msgspec.Struct, frozen=True):
    """One started process and what confines it, kept after its end: its worker's report, the receipt of what was
    observed, its use of resources (None when it is not watched), its last files that were quarantined, and its last
    hint to a caller.
    """

    start: ServerStart
    receipt: Receipt
    watch: Watch | None = None
    caught: tuple[str, ...] = ()
    hint: str = ""

    @property
    def status(self) -> SandboxStatus:
        """A summary."""
        return SandboxStatus(self.receipt.tier, self.receipt.network, self.start.gaps, self.caught, self.hint)

    def with_caught(self, told: str) -> "ConfinedServer":
        """Return a copy with one more quarantined file; only the last ones are kept."""
        return msgspec.structs.replace(self, caught=(*self.caught, told)[-MAX_CAUGHT:])


class Session(ABC):
    """The place where one server's session runs."""

    isolated = True
    newer_first = False
    """Whether a process that speaks both eras must speak the modern one."""
    is_sealing = False
    """Whether the server's package is being sealed, before anything of it starts."""
    sealed: SealedStart | None = None
    """The seal from which the server is started; None for one that runs as its row says."""
    home = ""
    """Its private home, once it is started; empty without a process of ours."""

    @abstractmethod
    async def start(self, listener: WorkerListener) -> WorkerHandle:
        """Get ready to be asked to `Open`; raises `ProtocolFault`."""

    @abstractmethod
    def order(self) -> OpenOrder:
        """Return what to open with; raise `ProtocolFault` if that fails."""

    async def prepare(self, order: OpenOrder) -> OpenOrder:
        """The order with what its worker need not find out."""
        return order

    async def greet(self, handle: WorkerHandle, timeout_s: float) -> ServerCard:
        """Have the worker start its server and greet it; raises `ProtocolFault`."""
        frame = Open(handle.next_id(), timeout_s)
        order = await self.prepare(msgspec.structs.replace(self.order(), newer_first=self.newer_first))
        return msgspec.json.decode(await ask(handle, frame, msgspec.json.encode(order)), type=ServerCard)

    def on_unauthorized(self, scopes: tuple[str, ...] | None) -> None:  # noqa: B027 - where there is a login of ours
        """The server refused the access token: see `Unauthorized`."""

    def enforce_limits(self, start: ServerStart) -> Watch | None:  # noqa: ARG002 - where there is a process of ours
        """Hold the server that was started to its limits until the end; None when it has no process of ours."""
        return None

    @abstractmethod
    async def end(self) -> None:
        """Release everything; the worker is killed when it does not go by itself."""


class WorkerSession(Session):
    """A worker process, whose server gets its own private directories and environment."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        allow_unsandboxed: bool = False,
        open_port: int | None = None,
        trusted: Callable[[], Iterable[str]] = trusted_files,
        secrets_of: Callable[[str], Iterable[str]] = lambda _: (),
        claim: Callable[[str], None] = lambda _: None,
        environ: Mapping[str, str] = os.environ,
        digest: str = "",
        access: Callable[[ServerConfig], Access | None] = lambda _: None,
        client: str = "",
        for_client: ForClient | None = None,
        sealing: Sealing = start_unsealed,
        check_program: Checking = start_unsealed,
        allow: str = "",
    ) -> None:
        """Start nothing yet.

        Args:
            config: which server.
            allow_unsandboxed: start it even where nothing but limits can be enforced.
            open_port: of a deck on this machine's loopback that requires no token, see `Settings`.
            trusted: the user's own files, which it may not write; see `config.trusted_files`.
            secrets_of: by a server's id, values of its configuration that no message may repeat, beside those that the
                configuration shows.
            claim: by a server's id, takes its directory before it starts; may raise `UnsafePathError`.
            environ: what its environment is made from.
            digest: names the configuration, which its directories belong to; that of the runtime by default.
            access: by a login at a remote server of this configuration; returns None without one.
            client: whose home it has; empty for the owner's.
            for_client: puts the client's secrets into the configuration at each start; None where none are left out.
            sealing: seals the package that its row asks a package runner for.
            check_program: compares the program of a server without a seal with the approved one.
            allow: begins the command that grants it a path; empty if it has no row.
        """
        self._config = config
        self._trusted = trusted
        self._claim = claim
        self._environ = environ
        self._digest = digest
        self._secrets = frozenset(secrets_of(config.id))
        self._allow_unsandboxed = allow_unsandboxed
        self._open_port = open_port
        self._runtime: Runtime | None = None
        self._handle: WorkerHandle | None = None
        self._watch: Watch | None = None
        self._access_to = access
        self._access: Access | None = None
        self._client = client
        self._for_client = for_client
        self._keeper: AccessKeeper | None = None
        self._sealing = sealing
        self._check_program = check_program
        self._allow = allow
        self._checking: asyncio.Future[None] | None = None
        self._holding = ExitStack()

    async def start(self, listener: WorkerListener) -> WorkerHandle:
        """See `Session`."""
        if self._for_client is not None:
            self._config, secrets = await self._for_client(self._config)
            self._secrets |= secrets
        if isinstance(self._config, StdioServerConfig):
            await self._open_seal(self._config)
        else:
            self._access = self._access_to(self._config)
        try:
            self._runtime = await Runtime.acquire()
        except UnsafePathError as error:
            raise _no_directory(error) from error
        config, is_remote = self._config, not isinstance(self._config, StdioServerConfig)
        self._handle = await self._runtime.start_worker(
            config.id, listener, config.max_result_bytes, is_remote=is_remote
        )
        return self._handle

    async def _open_seal(self, config: StdioServerConfig) -> None:
        self.is_sealing = True
        try:
            self.sealed = await self._sealing(config)
        finally:
            self.is_sealing = False
        # Beside the start of the worker, which takes as long.
        if self.sealed is not None:
            self._holding.enter_context(self.sealed.hold())
            self._checking = asyncio.ensure_future(asyncio.to_thread(self.sealed.check))
        else:
            self._checking = asyncio.ensure_future(self._check_program(config))

    def order(self) -> OpenOrder:
        """See `Session`."""
        assert self._runtime is not None
        config = self._config if self.sealed is None else self.sealed.config
        agreed = (config.protocol, config.max_result_bytes)
        if not isinstance(config, StdioServerConfig):
            return OpenOrder(
                _remote(config), *agreed, secrets=self._withheld(), capabilities=_told_capabilities(config)
            )
        try:
            self._claim(config.id)
            digest = self._digest or self._runtime.directory.digest
            paths = server_paths(digest, config.id, client=self._client).create()
            self.home = str(paths.home)
        except UnsafePathError as error:
            raise _no_directory(error) from error
        env = server_environment(config, self._environ, paths.home, paths.tmp)
        if self.sealed is not None and isinstance(self._config, StdioServerConfig):
            from quarterdeck.grants.needs import known_of  # by a sealed start alone: no other waits for it

            kept = known_of(self._config).beside_code
            env = {name: str(paths.home / file) for name, file in kept.items()} | env
        return OpenOrder(
            StdioServer(config.command, config.args, config.cwd, config.sandbox.values),
            *agreed,
            env,
            home=str(paths.home),
            log_path=str(paths.log),
            tmp=str(paths.tmp),
            private=(str(state_dir()), str(runtime_dir())),
            protected=with_announced(self._trusted()),
            user_home=_user_home(),
            user_env=user_environment(self._environ),
            allow_unsandboxed=self._allow_unsandboxed,
            open_port=self._open_port,
            secrets=self._withheld(env),
            capabilities=_told_capabilities(config),
            server_id=config.id,
            quarantine=str(quarantine_dir()),
            allow=self._allow,
        )

    async def prepare(self, order: OpenOrder) -> OpenOrder:
        """See `Session`."""
        assert self._runtime is not None
        if self._checking is not None:
            await self._checking
        if isinstance(order.server, StdioServer):
            return await self._runtime.prepare(order)
        return await self._authorized(order, order.server)

    async def _authorized(self, order: OpenOrder, server: RemoteServer) -> OpenOrder:
        """Return the order with our login's token, which is kept valid from now on."""
        token = await self._access.open() if self._access is not None else None
        if self._access is None or token is None:
            return order
        assert self._handle is not None
        handle = self._handle

        def give(value: str) -> None:
            handle.post(Authorize(), value.encode())

        self._keeper = AccessKeeper(self._config.id, self._access, give)
        self._keeper.start(token)
        return msgspec.structs.replace(
            order,
            server=msgspec.structs.replace(server, bearer=token.value),
            secrets=tuple(sorted({*order.secrets, token.value})),
        )

    def on_unauthorized(self, scopes: tuple[str, ...] | None) -> None:
        """See `Session`."""
        if self._keeper is not None:
            self._keeper.refused(scopes)

    def enforce_limits(self, start: ServerStart) -> Watch | None:
        """See `Session`."""
        assert self._runtime is not None
        self._runtime.note_start(start)
        handle = self._handle
        if handle is None or self._watch is not None or not isinstance(self._config, StdioServerConfig):
            return self._watch
        tree = ProcessTree(start.pid, start.tree_pid, start.root_pid, start.scratch, start.tmpfs, start.enforced)
        limits = self._config.sandbox.values.limits
        self._watch = self._runtime.monitor.watch(
            tree, limits, lambda excess: handle.condemn(excess.limit, excess.detail)
        )
        return self._watch

    async def end(self) -> None:
        """See `Session`."""
        if self._checking is not None:
            await asyncio.gather(self._checking, return_exceptions=True)
        if self._watch is not None:
            self._watch()
        if self._keeper is not None:
            await self._keeper.stop()
        if self._handle is not None:
            await self._handle.dismiss(EXIT_S)
            self._handle = None
        if self._runtime is not None:
            runtime, self._runtime = self._runtime, None
            await runtime.release()
        self._holding.close()

    def _withheld(self, env: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Return the values given to the server that no message may repeat."""
        return tuple(sorted(self._secrets | secrets_of(self._config, env)))


ALL_CAPABILITIES: Final = (
    '{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{},"context":{}},"roots":{"listChanged":true}}'
)
"""All questions that some caller can be asked."""


def _told_capabilities(config: ServerConfig) -> str:
    """Return what a server is told, once, of its callers' ability to answer questions."""
    return "{}" if config.ask is AskMode.DENY else ALL_CAPABILITIES


def _remote(config: SseServerConfig | StreamableHttpServerConfig) -> RemoteServer:
    match config:
        case StreamableHttpServerConfig():
            server = RemoteServer(config.url)
        case SseServerConfig(legacy_only=True):
            server = RemoteServer(config.url, transports=("sse",))
        case SseServerConfig():
            server = RemoteServer(config.url, transports=("streamable_http", "sse"))
    return msgspec.structs.replace(
        server,
        headers=dict(config.headers),
        proxy=config.proxy or "",
        ca_file=config.ca_file or "",
        client_cert=config.client_cert or "",
        client_key=config.client_key or "",
        internet_only=config.internet_only,
    )


def _no_directory(error: UnsafePathError) -> ProtocolFault:
    return ProtocolFault.not_sent(FaultKind.SPAWN_FAILED, str(error), "directory_unusable", error)


def _user_home() -> str:
    home = os.path.expanduser("~")
    return home if home.startswith("/") else ""
