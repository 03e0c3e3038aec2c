"""Which seal each server runs from: the one that the ledger names for what its row asks, else one that is made now.

What runs changes by a person's word alone (`upgrade`), or with the row itself: a seal that is missing is made again
from the lock that the ledger keeps, and has to have the same bytes.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from quarterdeck.common.imports import imported
from quarterdeck.config.environment import DEFAULT_PATH
from quarterdeck.fleet.sealed_start import SealedStart, sealed_config
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events.events import Authority, Sealed, hash_of
from quarterdeck.seals.launch import launch_of
from quarterdeck.seals.manifest import SealError
from quarterdeck.seals.request import PackageRequest, request_of
from quarterdeck.seals.store import Seal, SealStore
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault

from .common_record import CommonRecord
from .server_state import Recorder


def wanted_package(config: StdioServerConfig) -> PackageRequest | None:
    """Return the package that a row asks a package runner for; None if it runs as it says."""
    request = request_of(config.command, config.args) if config.seal else None
    return request if isinstance(request, PackageRequest) else None


class PackageSeals:
    """Opens the seals of servers, and makes missing ones.

    Args:
        common: as for `Approvals`.
        environ: our own environment, and that of the installers.
        allow_unsandboxed: install even where nothing but limits can be enforced.
    """

    def __init__(
        self,
        recorder: Recorder,
        common: CommonRecord,
        store: SealStore,
        environ: Mapping[str, str],
        *,
        allow_unsandboxed: bool = False,
    ) -> None:
        self._recorder = recorder
        self._common = common
        self._store = store
        self._environ = environ
        self._allow_unsandboxed = allow_unsandboxed

    async def open(self, config: StdioServerConfig, scope: str) -> SealedStart | None:
        """See `fleet.sealed_start.Sealing`; `scope` is the ledger's name of what configures the server."""
        request = wanted_package(config)
        if request is None:
            return None
        with _as_faults():
            async with self._common.sealing(request.words):
                found = await self._seal_of(request, scope, config.id)
            return await asyncio.to_thread(sealed_start, found, request, config, self._store, self._environ)

    async def _seal_of(self, request: PackageRequest, scope: str, server: str) -> Seal:
        recorded = self._recorder.book.entry(scope, server).seal
        if recorded is not None and recorded.words == request.words:
            kept = await asyncio.to_thread(self._store.open, recorded.seal)
            return kept or await self._made_again(request, recorded)
        found = await asyncio.to_thread(self._store.find, request.words) or await self._made(request)
        event, documents = sealed_event(found, scope, server, Authority.BASELINE, request.words)
        async with self._common.recording:
            try:
                await self._recorder.record([event], documents)
            except LedgerWriteError as error:
                # Tomorrow nobody could tell this code from another.
                raise SealError("unrecorded", f"its seal cannot be recorded: {error}") from error
        return found

    async def _made_again(self, request: PackageRequest, recorded: Sealed) -> Seal:
        lock = await self._recorder.document(recorded.lock)
        text = (lock or b"").decode("utf-8", "replace")
        made = await self._made(request, text, with_scripts=recorded.has_run_scripts)
        if made.digest != recorded.seal:
            raise SealError(
                "changed",
                f"{recorded.package} {recorded.version} is not what was approved: its seal is gone, and its index has "
                "other files now",
            )
        return made

    async def _made(self, request: PackageRequest, lock: str = "", *, with_scripts: bool = False) -> Seal:
        await imported("quarterdeck.seals.install")
        from quarterdeck.seals.install import seal
        from quarterdeck.seals.install_sandbox import InstallSettings

        settings = InstallSettings(self._environ, Path.home(), allow_unsandboxed=self._allow_unsandboxed)
        return await seal(request, self._store, settings, with_scripts=with_scripts, lock=lock)


def sealed_start(
    found: Seal, request: PackageRequest, config: StdioServerConfig, store: SealStore, environ: Mapping[str, str]
) -> SealedStart:
    """Return how a row is started from this seal, which is in `store`; `environ` is our own environment.

    Blocking.  Raises `SealError` if a program that it needs is not here.
    """
    path = config.env.get("PATH") or environ.get("PATH") or DEFAULT_PATH
    launch = launch_of(found, request, path)

    @contextmanager
    def hold() -> Iterator[None]:
        with _as_faults(), store.held(found):
            yield

    def check() -> None:
        with _as_faults():
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
def _as_faults() -> Iterator[None]:
    try:
        yield
    except SealError as error:
        raise fault_of(error) from error


def fault_of(error: SealError) -> ProtocolFault:
    """Return the fault of a start that a seal prevents."""
    return ProtocolFault(
        FaultKind.SPAWN_FAILED,
        error.message,
        error,
        code="seal_changed" if error.code == "changed" else "seal_failed",
        delivery=Delivery.NOT_SENT,
        remedy=error.remedy or None,
    )
