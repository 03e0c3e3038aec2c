"""The composition root: settings in, the running product out, and nothing left behind at the end.

    async with open_quarterdeck(Settings.load([Path("mcp.json")])) as product:
        host = product.create_host()

Above it are the command line and embedding programs; below it fleet, bridge and host.  It decides no behaviour: it
reads files, makes the parts, and hands them to one another.
"""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck.common.events import Bus, ServerChanged, SessionEnded, TrustChanged
from quarterdeck.common.shielding import carried_through, made_in_thread
from quarterdeck.common.tool_names import NATIVE_NAMES
from quarterdeck.config.places.paths import seals_dir, state_dir
from quarterdeck.config.places.runtime_directory import RuntimeDirectory
from quarterdeck.config.secrets.store import SecretStore
from quarterdeck.config.settings import Settings
from quarterdeck.fleet.deck_fleet import DeckFleet
from quarterdeck.fleet.from_settings import FleetSource, SealingOf
from quarterdeck.fleet.session_servers import SessionServers
from quarterdeck.fleet.shared_servers import SharedServers
from quarterdeck.fleet.workers.runtime import Runtime
from quarterdeck.host.program_names import ProgramNames
from quarterdeck.ledger.call_log import CallLog
from quarterdeck.ledger.open import (
    SERVE,
    HandOver,
    LedgerWriter,
    VisitingRecorder,
    open_recorder,
    visiting,
)
from quarterdeck.ledger.store.database import audit_time
from quarterdeck.ledger.store.lease import Holder
from quarterdeck.login.access import Admits, LoginAccess, is_own_word
from quarterdeck.login.broker import LoginPlace, OpenLogin
from quarterdeck.login.store import LoginStore, login_name
from quarterdeck.running_product import Product
from quarterdeck.seals.store import SealStore
from quarterdeck.trust.approvals import Approvals
from quarterdeck.trust.common_record import CommonRecord
from quarterdeck.trust.judge.server_rows import Locks
from quarterdeck.trust.logins import LoginApprovals
from quarterdeck.trust.package import has_to_install
from quarterdeck.trust.programs import Programs
from quarterdeck.trust.seals import PackageSeals, wanted_package
from quarterdeck_protocol.configs import RemoteServerConfig, ServerConfig, ServerScope, StdioServerConfig

COMMAND_WAIT_S: Final = 10.0
"""How long a `serve` waits for a command that writes the ledger: commands end by themselves."""


class Shared(msgspec.Struct, frozen=True):
    """What several products of one process share.

    Attributes:
        recorder: of the state directory's ledger.
        servers: those that more than one has.
        common: what is decided and recorded once.
        logins: those under way, by the names that they are kept under.
        bus: hears what happens in each of them.
    """

    recorder: LedgerWriter
    servers: SharedServers = msgspec.field(default_factory=SharedServers)
    common: CommonRecord = msgspec.field(default_factory=CommonRecord)
    logins: dict[str, OpenLogin] = {}
    bus: Bus = msgspec.field(default_factory=Bus)


@asynccontextmanager
async def open_quarterdeck(
    settings: Settings,
    *,
    serves: bool = False,
    visits: bool = False,
    lock: Locks | None = None,
    shared: Shared | None = None,
    hand_over: HandOver | None = None,
    sealing: SealingOf | None = None,
    deck: str = "",
    bus: Bus | None = None,
) -> AsyncIterator[Product]:
    """Start what the settings name, without waiting for it; at the end stop it all, and wait for that.

    Args:
        settings: what to run.
        serves: whether it must be the process that writes the ledger of the state directory.
        visits: whether it only reads the ledger, and keeps its records in memory.
        lock: a `deck.lock`; beside what it names nothing is offered.
        shared: with the other products of this process; None for one that is alone.
        hand_over: passes this product's records to the process that writes the ledger; None to keep them in memory.
        sealing: seals the packages of servers; None to take those that the ledger names, from the user's own seals.
        deck: the key of its deck, for events.
        bus: hears what happens here; None for that of `shared`, or for nobody.

    Raises:
        LeaseHeldError: another process writes the ledger, and we must.
        LedgerError: the ledger cannot be used.
        ConfigFileError: it cannot be kept as the user's own file says.
        UnsafePathError: a directory that must be ours alone is not.
        OSError: one cannot be made.
    """
    common = shared.common if shared is not None else CommonRecord()
    bus = bus or (shared.bus if shared is not None else Bus())
    async with AsyncExitStack() as stack:
        runtime = await Runtime.acquire(settings.digest)
        stack.push_async_callback(carried_through, runtime.release)
        directory = runtime.directory
        if shared is not None:
            # Of several in this process each is found by its own configuration.
            made = await made_in_thread(partial(RuntimeDirectory.create, settings.digest), RuntimeDirectory.close)
            directory = stack.enter_context(made)

        if settings.starts_processes and not serves:
            runtime.warm_up()  # the zygote imports while the ledger is read
        holder = make_holder(runtime.directory, settings, command=SERVE if serves else "command")
        wait_s = COMMAND_WAIT_S if serves else 0.0
        writes: LedgerWriter | VisitingRecorder
        if shared is not None:
            writes = shared.recorder
        elif visits:
            writes = await stack.enter_async_context(visiting(state_dir()))
        else:
            opening = open_recorder(state_dir(), holder, must_write=serves, wait_s=wait_s, hand_over=hand_over)
            writes = await stack.enter_async_context(opening)
        programs = ProgramNames()

        def redact(text: str) -> str:
            return product.redact(text)  # made below

        calls = CallLog(writes.record_calls, programs, redact, bus, deck, lambda: writes.book.last_seq)
        # After the fleet, which ends calls when it is torn down.
        stack.push_async_callback(carried_through, calls.close)

        def at_present() -> Settings:
            flags = {key: getattr(settings, key) for key in ("allow_unsandboxed", "open_port", "environ")}
            return replace(product.settings, **flags)

        logins = LoginApprovals(writes, common)

        def access(config: ServerConfig, scope: str, client: str) -> LoginAccess | None:
            if isinstance(config, StdioServerConfig) or config.brings_credentials:
                return None

            name, wants = login_name(scope, config.id, config.url, client), partial(logins.hold, scope, config.id)
            return LoginAccess(config, name, admits_of(config, scope), wants)

        def mark_of(server: str, client: str) -> object:
            """Return a value that changes when a secret of a client is set, or a login made or forgotten."""
            config, scope = product.config(server), product.scope(server)
            form = product.settings.origin(server).for_client
            kept = SecretStore(client=client).mark(form.secrets) if form is not None else None
            if config is None or scope is None or isinstance(config, StdioServerConfig) or not config.auth.needs_person:
                return kept
            return kept, LoginStore().place_of(login_name(scope, server, config.url, client))

        def admits_of(config: RemoteServerConfig, scope: str) -> Admits:
            return lambda terms: logins.admits(scope, config.id, terms, is_own_word=is_own_word(config, terms))

        def find_login(server: str) -> LoginPlace | None:
            config, scope = product.config(server), product.scope(server)
            if config is None or scope is None or isinstance(config, StdioServerConfig):
                return None
            # A call of one client would have its person log in for another, where each has a login of its own.
            if config.brings_credentials or not config.auth.needs_person or config.scope is ServerScope.CLIENT:
                return None
            name, approved = login_name(scope, server, config.url), partial(logins.approved, scope, server)
            return LoginPlace(config, name, approved, admits_of(config, scope))

        seals = PackageSeals(
            writes,
            common,
            SealStore(seals_dir()),
            settings.environ,
            lock=lock,
            allow_unsandboxed=settings.allow_unsandboxed,
        )
        local = Programs(writes, common, settings.environ, seals.has_seal)
        source = FleetSource(
            settings=at_present,
            scope=lambda server: product.scope(server),  # noqa: PLW0108 - it is made below
            trusted=lambda: product.settings.trusted,
            slot=shared.servers.slots.hold if shared is not None else nullcontext,
            access=access,
            is_needed=lambda server: product.schedule.needs(server),  # noqa: PLW0108 - it is made below
            sealing=sealing or seals.open,
            check_program=local.check if sealing is None else None,
            has_to_install=_has_to_install,
            words=lambda server: product.words_of(server),  # noqa: PLW0108 - it is made below
            withhold=lambda secrets: product.withhold(secrets),  # noqa: PLW0108 - it is made below
        )
        own = source.fleet()
        fleet = own if shared is None else DeckFleet(own, shared.servers, source.wish)
        stack.push_async_callback(carried_through, fleet.tear_down)
        sessions = SessionServers(source.fleet, mark_of=mark_of)
        stack.push_async_callback(carried_through, sessions.close)
        approvals = Approvals(
            writes,
            fleet,
            home_of=lambda server: product.settings.paths_of(server).home,
            native_names=NATIVE_NAMES if settings.native is not None else frozenset(),
            redact=redact,
            common=common,
            code=local,
        )
        stack.push_async_callback(carried_through, approvals.close)

        def tell_session(client: str, took_s: float) -> None:
            if bus.is_heard:
                # Over HTTP a session has a key below that of its token.
                bus.tell(SessionEnded(deck, "tcp" if "/" in client else "pipe", took_s))

        def announce(url: str) -> None:
            if isinstance(writes, LedgerWriter):
                writes.lease.update(msgspec.structs.replace(holder, url=url))

        product: Product = Product(
            settings,
            directory,
            fleet,
            approvals,
            lock,
            announce,
            calls.note,
            serves=serves,
            common=common,
            sessions=sessions,
            sleeps=serves,
            warm_up=runtime.warm_up,
            find_login=find_login,
            logins=shared.logins if shared is not None else None,
            programs=programs,
            write_calls=calls.flush,
            tell_session=tell_session,
            bus=bus,
        )
        stack.push_async_callback(carried_through, product.logins.close)
        if product.decks is not None:
            stack.push_async_callback(carried_through, product.decks.close)
        approvals.start()

        def tell_server(server: str) -> None:
            if bus.is_heard and (status := product.status_of(server)) is not None:
                bus.tell(ServerChanged(deck, server, status.phase, status.restarts))

        def tell_trust(server: str) -> None:
            if bus.is_heard:
                bus.tell(TrustChanged(deck, server))

        stack.callback(fleet.watch_each(tell_server))
        stack.callback(approvals.watch_each(tell_trust))
        if serves:
            product.schedule.follow(approvals.watch_each)
            stack.callback(product.schedule.close)
        stack.callback(common.hear(product.note_decisions))
        # Before it opens: what is decided meanwhile is followed, too.
        stack.callback(common.carry_out(product.apply))
        await product.apply()
        yield product


def _has_to_install(config: StdioServerConfig, home: Path) -> bool:
    return wanted_package(config) is None and has_to_install(config.command, config.args, home)


def make_holder(directory: RuntimeDirectory, settings: Settings | None = None, *, command: str) -> Holder:
    """What this process says of itself to others that want the ledger."""
    return Holder(
        pid=os.getpid(),
        digest=settings.digest if settings is not None else "",
        config_paths=tuple(str(path.resolve()) for path in settings.config_paths) if settings is not None else (),
        command=command,
        runtime_directory=str(directory.path),
        started_at=audit_time(),
    )
