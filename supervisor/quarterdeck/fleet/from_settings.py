"""Make fleets of the servers that settings name: one for a deck's own, and one for each that decks share."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from quarterdeck.config.environment import shared_environment
from quarterdeck.config.load.origin import Standing
from quarterdeck.config.load.problems import RowError
from quarterdeck.config.places.kept_state import reserve_server_home
from quarterdeck.config.secrets.store import MissingSecretError, SecretError
from quarterdeck.config.settings import Settings
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault

from .access import Access
from .endpoint import ServerEndpointImpl, create_server_endpoint
from .fleet import ServerFleetImpl
from .sealed_start import SealedStart, start_unsealed
from .shared_servers import Trusted, Wish

SealingOf = Callable[[StdioServerConfig, str], Awaitable[SealedStart | None]]
"""As `Sealing`, for a server of this scope."""

CheckingOf = Callable[[StdioServerConfig, str], Awaitable[None]]
"""As `Checking`, for a server of this scope."""


class FleetSource(msgspec.Struct, frozen=True):
    """What fleets are made of.

    Attributes:
        settings: returns the settings when a server starts.
        scope: how the ledger names what configures a server; None for an unknown one.
        trusted: the user's own files, see `WorkerSession`.
        slot: a server starts inside it, see `ServerFleetImpl`.
        has_to_install: whether this server, with this home, must fetch its program before it can start; blocking.
        access: by a client's login at a server of this scope; None for one that needs none.
        is_needed: whether the deck needs this server awake.
        sealing, check_program: by a server's scope; see `WorkerSession`.
        words: by which a command finds this server.
        withhold: keeps these values out of every log and answer.
        client: whose processes these are, of rows with `"scope": "client"`; empty for the owner's.
    """

    settings: Callable[[], Settings]
    scope: Callable[[str], str | None]
    trusted: Trusted
    slot: Callable[[], AbstractAsyncContextManager[None]]
    has_to_install: Callable[[StdioServerConfig, Path], bool]
    access: Callable[[ServerConfig, str, str], Access | None] = lambda _config, _scope, _client: None
    is_needed: Callable[[str], bool] = lambda _: True
    sealing: SealingOf | None = None
    check_program: CheckingOf | None = None
    words: Callable[[str], str] = str
    withhold: Callable[[frozenset[str]], None] = lambda _: None
    client: str = ""

    def fleet(self, client: str = "") -> ServerFleetImpl:
        """Return a fleet that starts its servers with the settings of that moment, those of client scope as `client`'s
        own (empty: the owner's).
        """
        if client:
            return replace(self, client=client).fleet()
        return ServerFleetImpl(self._endpoint, installs=self._installs, slot=self.slot)

    def wish(self, config: ServerConfig) -> Wish | None:
        """Return the request for a server that decks share, with the present settings; None for one of a deck's own."""
        settings, scope, words = self.settings(), self.scope(config.id), self.words(config.id)
        key = sharing_key(settings, config, scope) if scope is not None else None
        if key is None:
            return None
        # The deck may be gone before the server is.
        kept = replace(self, settings=lambda: settings, scope=lambda _: scope, words=lambda _: words)
        place = f"{settings.home_digest(config.id)}/{config.id}"

        def make_fleet(trusted: Trusted) -> ServerFleetImpl:
            return replace(kept, trusted=trusted).fleet()

        return Wish(key, place, config, self.trusted, make_fleet, partial(self.is_needed, config.id))

    def _endpoint(self, config: ServerConfig) -> ServerEndpointImpl:
        settings, scope = self.settings(), self.scope(config.id)
        return create_server_endpoint(
            config,
            allow_unsandboxed=settings.allow_unsandboxed,
            open_port=settings.open_port,
            trusted=self.trusted,
            claim=self._claim,
            secrets_of=settings.secrets_of,
            environ=settings.environ,
            digest=settings.home_digest(config.id),
            client=self.client,
            for_client=self._for_client if settings.origin(config.id).for_client is not None else None,
            allow="" if settings.command else f"quarterdeck allow {self.words(config.id)}",
            access=partial(self._access, scope),
            sealing=start_unsealed if scope is None or self.sealing is None else partial(self._seal, scope),
            check_program=start_unsealed
            if scope is None or self.check_program is None
            else partial(self._check, scope),
        )

    def _access(self, scope: str | None, config: ServerConfig) -> Access | None:
        return self.access(config, scope, self.client) if scope is not None else None

    async def _for_client(self, config: ServerConfig) -> tuple[ServerConfig, frozenset[str]]:
        """See `Settings.for_client`; raises `ProtocolFault`."""
        try:
            found, secrets = await asyncio.to_thread(self.settings().for_client, config, self.client)
        except MissingSecretError as error:
            # The owner's is what its lists are taken with, and nothing of a client's has failed that a call would mend.
            then = "" if self.client else ", then quarterdeck restart SERVER"
            raise _no_start(str(error), "missing_client_secret", f"{error.command}{then}") from error
        except SecretError as error:
            remedy = "unlock the keyring, then quarterdeck restart SERVER"
            raise _no_start(str(error), "keyring_unusable", remedy) from error
        except RowError as error:
            whose = self.client or "the owner"
            raise _no_start(f"with the secrets of {whose}: {error}", "config_invalid") from error
        self.withhold(secrets)
        return found, secrets

    async def _check(self, scope: str, config: StdioServerConfig) -> None:
        assert self.check_program is not None
        await self.check_program(config, scope)

    async def _seal(self, scope: str, config: StdioServerConfig) -> SealedStart | None:
        assert self.sealing is not None
        return await self.sealing(config, scope)

    def _claim(self, server: str) -> None:
        if (scope := self.scope(server)) is not None:
            settings = self.settings()
            reserve_server_home(settings.home_digest(server), server, scope)

    def _installs(self, config: ServerConfig) -> bool:
        if not isinstance(config, StdioServerConfig):
            return False
        return self.has_to_install(config, self.settings().paths_of(config.id, self.client).home)


def _no_start(message: str, code: str, remedy: str | None = None) -> ProtocolFault:
    return ProtocolFault(FaultKind.SPAWN_FAILED, message, code=code, delivery=Delivery.NOT_SENT, remedy=remedy)


def sharing_key(settings: Settings, config: ServerConfig, scope: str) -> str | None:
    """Return a key that is equal for servers that decks of one process can share because they would start just the
    same; None for a server that a deck has for itself: a project's, or a program's. `scope` is the ledger's name of
    what configures it.
    """
    origin = settings.origin(config.id)
    if origin.standing not in (Standing.NAMED, Standing.USER):
        return None
    environment = shared_environment(settings.environ) | settings.inherited_environment(config)
    said = (
        (scope, settings.home_digest(config.id), type(config).__name__, config.model_dump_json()),
        (sorted(origin.expanded), sorted(environment.items())),
        (settings.allow_unsandboxed, settings.open_port),
    )
    return hashlib.sha256(repr(said).encode("utf-8", "surrogateescape")).hexdigest()
