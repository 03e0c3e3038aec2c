"""Which seal each server runs from: the one that the ledger names for what its row asks, else one that is made now.

What runs changes by a person's word alone (`upgrade`), or with the row itself: a seal that is missing is made again
from the lock that the ledger keeps, and has to have the same bytes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from quarterdeck.common.imports import imported
from quarterdeck.config.environment import DEFAULT_PATH
from quarterdeck.fleet.sealed_start import SealedStart, sealed_config
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events.events import Authority, Sealed, hash_of
from quarterdeck.ledger.events.fold import Entry
from quarterdeck.seals.launch import launch_of
from quarterdeck.seals.manifest import SealError
from quarterdeck.seals.request import PackageRequest, request_of
from quarterdeck.seals.store import Seal, SealStore
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault

from .common_record import CommonRecord
from .judge.server_rows import LockedSeal, Locks
from .server_state import Recorder

_log = logging.getLogger("quarterdeck.trust")


def wanted_package(config: StdioServerConfig) -> PackageRequest | None:
    """Return the package that a row asks a package runner for; None if it runs as it says."""
    request = request_of(config.command, config.args) if config.seal else None
    return replace(request, max_bytes=config.max_seal_bytes) if isinstance(request, PackageRequest) else None


Install = Callable[[PackageRequest, LockedSeal | None], Awaitable[Seal]]
"""Install what is asked for, or a known seal again, from its lock.  Raises `SealError`."""


class PackageSeals:
    """Opens the seals of servers, and makes missing ones.

    Args:
        common: as for `Approvals`.
        environ: our own environment, and that of the installers.
        lock: a `deck.lock`, which no server's seal may contradict.
        install: None for the real one.
        allow_unsandboxed: install even where nothing but limits can be enforced.
    """

    def __init__(
        self,
        recorder: Recorder,
        common: CommonRecord,
        store: SealStore,
        environ: Mapping[str, str],
        *,
        lock: Locks | None = None,
        install: Install | None = None,
        allow_unsandboxed: bool = False,
    ) -> None:
        self._install = install or self._install_really
        self._recorder = recorder
        self._common = common
        self._store = store
        self._environ = environ
        self._lock = lock
        self._allow_unsandboxed = allow_unsandboxed

    async def open(self, config: StdioServerConfig, scope: str) -> SealedStart | None:
        """See `fleet.sealed_start.Sealing`; `scope` is the ledger's name of what configures the server."""
        request = wanted_package(config)
        if request is None:
            return None
        with as_faults():
            async with self._common.sealing(request.words):
                try:
                    found = await self._seal_of(request, scope, config.id)
                except SealError as error:
                    if error.code != "no_sandbox" or self._recorder.book.entry(scope, config.id).seal is not None:
                        raise
                    # A machine without bubblewrap: an installer would reach more than the index.
                    _log.warning("%s runs by its package runner: %s; %s", config.id, error.message, error.remedy)
                    return None
            return await asyncio.to_thread(sealed_start, found, config, self._environ)

    def has_seal(self, config: StdioServerConfig, entry: Entry) -> bool | None:
        """Return whether the seal that the ledger names for a row is there, unchecked; None for a row without one."""
        request = wanted_package(config)
        if request is None:
            return None
        return entry.seal is not None and entry.seal.words == request.words and self._store.has(entry.seal.seal)

    async def _seal_of(self, request: PackageRequest, scope: str, server: str) -> Seal:
        recorded = self._recorder.book.entry(scope, server).seal
        locked = self._lock.for_server(server).seal if self._lock is not None else None
        if locked is not None:
            _refuse_contradiction(locked, request, recorded)
        if recorded is not None and recorded.words == request.words:
            lock = (await self._recorder.document(recorded.lock) or b"").decode("utf-8", "replace")
            return await self._as_before(
                request, LockedSeal(recorded.seal, recorded.words, lock, recorded.has_run_scripts)
            )
        if locked is not None:
            found = await self._as_before(request, locked)
        else:
            kept = await asyncio.to_thread(self._store.find, request.words)
            found = kept if kept is not None else await self._install(request, None)
        event, documents = sealed_event(found, scope, server, Authority.BASELINE, request.words)
        async with self._common.recording:
            try:
                await self._recorder.record([event], documents)
            except LedgerWriteError as error:
                # Tomorrow nobody could tell this code from another.
                raise SealError("unrecorded", f"its seal cannot be recorded: {error}") from error
        return found

    async def _as_before(self, request: PackageRequest, known: LockedSeal) -> Seal:
        """Return this seal, installed again from its lock if it is not there."""
        kept = await asyncio.to_thread(self._store.open, known.digest)
        if kept is not None:
            return kept
        made = await self._install(request, known)
        if made.digest != known.digest:
            raise SealError(
                "changed",
                f"{made.manifest.name} {made.manifest.version} has other files here ({made.digest[:12]}) than what was "
                f"approved or locked ({known.digest[:12]}): its index has changed, or this is another platform",
            )
        return made

    async def _install_really(self, request: PackageRequest, known: LockedSeal | None) -> Seal:
        await imported("quarterdeck.seals.install")
        from quarterdeck.seals.install import seal
        from quarterdeck.seals.install_sandbox import InstallSettings

        settings = InstallSettings(self._environ, Path.home(), allow_unsandboxed=self._allow_unsandboxed)
        if known is None:
            return await seal(request, self._store, settings)
        return await seal(request, self._store, settings, with_scripts=known.has_run_scripts, lock=known.lock)


def _refuse_contradiction(locked: LockedSeal, request: PackageRequest, recorded: Sealed | None) -> None:
    """Raise SealError if a row, or what it ran from before, is not what a `deck.lock` names.  A stranger may have
    written that: it changes nothing that was approved here.
    """
    remedy = "take the lock's version into the row, or write the lock anew: quarterdeck lock"
    if locked.words != request.words:
        raise SealError("changed", f"deck.lock has {locked.words}, and the row asks for {request.words}", remedy)
    if recorded is not None and recorded.words == request.words and recorded.seal != locked.digest:
        here, there = recorded.seal[:12], locked.digest[:12]
        raise SealError("changed", f"deck.lock has the seal {there} of {locked.words}, and here {here} runs", remedy)


def sealed_start(found: Seal, config: StdioServerConfig, environ: Mapping[str, str]) -> SealedStart:
    """Return how a row is started from the seal of its package; `environ` is our own environment.

    Blocking.  Raises `SealError` if a program that it needs is not here.
    """
    request, store = wanted_package(config), SealStore(found.folder.parent)
    assert request is not None, "its row asks for the package"
    path = config.env.get("PATH") or environ.get("PATH") or DEFAULT_PATH
    launch = launch_of(found, request, path)

    @contextmanager
    def hold() -> Iterator[None]:
        with as_faults(), store.held(found):
            yield

    def check() -> None:
        with as_faults():
            store.check(found)

    package = f"{found.manifest.name} {found.manifest.version} ({found.manifest.index})"
    return SealedStart(sealed_config(config, launch, path), found.digest, package, unrun_scripts(found), hold, check)


def sealed_event(found: Seal, scope: str, server: str, by: Authority, words: str) -> tuple[Sealed, dict[str, bytes]]:
    """Return the event that a server whose row asks for a package in these words runs from this seal, and the document
    that it names.
    """
    manifest = found.manifest
    lock = manifest.lock.encode()
    event = Sealed(
        scope=scope,
        server=server,
        words=words,
        seal=found.digest,
        package=manifest.name,
        version=manifest.version,
        lock=hash_of(lock),
        by=by,
        has_run_scripts=manifest.has_run_scripts,
    )
    return event, {event.lock: lock}


def unrun_scripts(found: Seal) -> tuple[str, ...]:
    """Return the packages of a seal whose install scripts were not run, with the scripts."""
    if found.manifest.has_run_scripts:
        return ()
    return tuple(f"{each.name}: {each.script}" for each in found.manifest.packages if each.script)


@contextmanager
def as_faults() -> Iterator[None]:
    """Raise errors of seals in the block as the faults of a start."""
    try:
        yield
    except SealError as error:
        raise fault_of(error) from error


def fault_of(error: SealError) -> ProtocolFault:
    """Return the fault of a start that a seal prevents."""
    is_changed = error.code == "changed"
    return ProtocolFault(
        FaultKind.SPAWN_FAILED,
        error.message,
        error,
        code="seal_changed" if is_changed else "seal_failed",
        delivery=Delivery.NOT_SENT,
        remedy=error.remedy or None,
    )
