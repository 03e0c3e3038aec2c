"""Try a server once, before anything of it is kept: what it lists, what confined it, or why it did not start.

It runs confined, with state, home and runtime directories that are thrown away, and may change nothing of the user's:
what its row would let it write it only reads, and it is given no grants.  Its network is that of its row.  Its home
holds decoys; nothing is called, so only what it does with them unasked is seen.
"""

import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck.check.decoys import Marks
from quarterdeck.check.episode import Episode
from quarterdeck.check.observed import Observed, Taken, observe
from quarterdeck.check.place import harmless
from quarterdeck.check.world import World
from quarterdeck.cli.output import hint
from quarterdeck.cli.process import run
from quarterdeck.cli.run.servers import print_fault
from quarterdeck.cli.source import start_product
from quarterdeck.config.places.kept_state import reserve_server_home
from quarterdeck.config.places.paths import RUNTIME_DIR_VARIABLE, STATE_DIR_VARIABLE, state_dir
from quarterdeck.config.settings import Settings
from quarterdeck.daemon.control.answers import answer
from quarterdeck.daemon.control.protocol import FaultView, Inspect, Inspection, ReceiptView
from quarterdeck.fleet.core.member import INSTALL_PATIENCE
from quarterdeck.ledger.events.events import LISTED, Subject
from quarterdeck.seals.request import runner_of
from quarterdeck.seals.store import Seal
from quarterdeck.trust.judge.documents import Document
from quarterdeck.trust.judge.server_rows import PROGRAM_SCOPE
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig, TrustMode
from quarterdeck_sandbox import is_within_any, open_regular, temporary_folder

from .row_change import recorded
from .sealing import start_from

_PACKAGE: Final = re.compile(r"\S+ (?P<version>\S+) \((?:npm|PyPI)\)")

_NO_PACKAGE: Final = re.compile(
    r"npm err(?:or|!) (?:code )?E?(?:404|TARGET)\b|not found in the package registry|there is no version of",
    re.IGNORECASE,
)
"""Matches npm's and uv's words for a package or version that does not exist."""

_NO_SOLUTION: Final = re.compile(r"requirements are unsatisfiable|npm err(?:or|!) code ERESOLVE\b", re.IGNORECASE)
"""Matches their words for packages that conflict."""

_NO_IMPORT: Final = re.compile(
    r"(?:ModuleNotFound|Import)Error\b|ERR_MODULE_NOT_FOUND|Cannot find (?:module|package)\b"
)
"""Matches Python's and Node's words for a missing module."""

_MAY_LACK: Final = frozenset({"exited", "exited_at_handshake", "limit_hit", "sandbox_refused"})
"""The faults of what a row or its sandbox may keep from a server."""

_NO_MCP: Final = frozenset({"bad_output", "handshake_failed", "handshake_timeout"})
"""The faults of a program that runs, but does not speak MCP."""

_LOG_BYTES: Final = 1024 * 1024
"""The part of its log in which contents of decoys are sought."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of trying a server.

    Attributes:
        documents: its instructions, capabilities and lists; not its launch.
        fault: why it lists nothing; None if it answered.
        receipt: what confined it; None for a remote server, or one that was never started.
        version: of its package, as installed; empty if unknown.
        observed: what it did with the decoys; None for a remote server, or one that did not answer.
    """

    documents: tuple[Document, ...] = ()
    fault: FaultView | None = None
    receipt: ReceiptView | None = None
    version: str = ""
    observed: Observed | None = None

    @property
    def lists_nothing(self) -> bool:
        """It lists no tool, no prompt and no resource."""
        return not any(document.key.subject in LISTED for document in self.documents)

    @property
    def wants_login(self) -> bool:
        """It is a remote server that lists nothing to strangers."""
        return self.fault is not None and self.fault.code == "auth_needed"


def try_server(
    config: ServerConfig, secrets: frozenset[str], *, seal: Seal | None = None, allow_unsandboxed: bool
) -> Trial:
    """Start the server, from its package's seal if it has one, read its lists, and end it; `secrets` are kept out of
    all messages.

    Raise CommandError if nothing can be tried here.
    """
    harmless = _without_harm(config)
    settings = Settings(servers=(harmless,), expanded_secrets=secrets, allow_unsandboxed=allow_unsandboxed)
    # The caller says what was found, and asks.
    logging.getLogger("quarterdeck").setLevel(logging.CRITICAL)

    async def look(world: World | None) -> Inspection:
        with world.watched() if world is not None else nullcontext():
            async with start_product(settings, sealing=partial(start_from, seal)) as product:
                await product.finished()
                found = await answer(product, Inspect(config.id))
        assert isinstance(found, Inspection)
        return found

    with temporary_folder("quarterdeck-try-") as base, _throwaway(Path(base)):
        world = _world(settings, config, seal) if isinstance(config, StdioServerConfig) else None
        found = run(partial(look, world))
        with recorded() as (book, read):
            entry = book.entry(PROGRAM_SCOPE, config.id)
            seen = {key: item.seen for key, item in entry.items.items() if item.seen and key.subject != Subject.LAUNCH}
            documents = [Document(key, hash_, body) for key, hash_ in seen.items() if (body := read(hash_)) is not None]
        log = settings.paths_of(config.id).log
        observed = _observed(world, log, documents) if world is not None else None
    fault, life = found.server.fault, entry.last_life
    version = _PACKAGE.fullmatch(life.package) if life is not None else None
    trial = Trial((), fault, found.receipt, version["version"] if version else "")
    return trial if fault is not None else replace(trial, documents=tuple(documents), observed=observed)


def try_shown(
    what: str, config: ServerConfig, secrets: frozenset[str], seal: Seal | None, *, allow_unsandboxed: bool
) -> Trial:
    """Try `what` as `try_server` does; print what is waited for and, unless it wants a login, why it failed.

    The caller adds the remedy.
    """
    limit_s = config.connect_timeout_s
    patience = f"it has {limit_s:g} s to answer"
    if not isinstance(config, StdioServerConfig):
        how = f"asking {what} once"
    else:
        how = f"trying {what} once, in a throwaway sandbox"
        if seal is None and runner_of(config.command, config.args) is not None:
            patience += f", {limit_s * INSTALL_PATIENCE:g} s more while its package is being installed"
    hint(f"{how}: {patience} …")
    trial = try_server(config, secrets, seal=seal, allow_unsandboxed=allow_unsandboxed)
    if trial.fault is not None and not trial.wants_login:
        print_fault(msgspec.structs.replace(trial.fault, remedy=None), of=config.id, stderr=True)
    return trial


def remedy_of(fault: FaultView, *, is_remote: bool) -> str:
    """Return the remedy for a failed trial; no command that needs the server or its log, which are gone."""
    stderr = fault.dossier.stderr_tail if fault.dossier is not None else ""
    if (fault.code or "").startswith("too_many_"):
        return "report it to the server's author: it lists more than is taken of any server"
    if is_remote:
        what = "check its URL, and what it wants to be sent: --header"
    elif _NO_PACKAGE.search(stderr):
        what = "check the package's name and version: quarterdeck search WORD finds those of the registry"
    elif _NO_SOLUTION.search(stderr):
        what = "try another version of the package, or of what is asked for beside it"
    elif _NO_IMPORT.search(stderr):
        what = "install what it imports, or another version of it; what lies where it cannot look: --read PATH"
    elif fault.code in _NO_MCP or (fault.dossier is not None and fault.dossier.exit_status == 0):
        what = "check that its command and arguments start an MCP server on stdio: quarterdeck check -- COMMAND"
    elif fault.code in _MAY_LACK:
        what = "give it what it lacks: --set, --env, --read PATH or --network"
    else:
        what = "run its command by hand"
    return f"{what}; or add it all the same: --untried"


def _world(settings: Settings, config: StdioServerConfig, seal: Seal | None) -> World:
    reserve_server_home(settings.home_digest(config.id), config.id, PROGRAM_SCOPE)
    has_runner = seal is None and runner_of(config.command, config.args) is not None
    return World(settings.paths_of(config.id).create().home, has_runner=has_runner).make()


def _observed(world: World, log: Path, documents: Iterable[Document]) -> Observed:
    world.forget_listings()  # a start walks through the home, too
    observed = observe(world.recording(Episode("trial", touches=[world.take()])))
    sent = [(document.body, f"its {document.key.subject} {document.key.name}".rstrip()) for document in documents]
    with suppress(OSError), open_regular(str(log)) as file:
        sent.append((file.read(_LOG_BYTES), "its stderr"))
    marks = Marks(world.decoys)
    taken = [Taken(f"~/{path}", carrier) for data, carrier in sent for path in marks.found_in(data)]
    return replace(observed, taken=tuple(taken))


def _without_harm(config: ServerConfig) -> ServerConfig:
    config = config.model_copy(update={"trust": TrustMode.BASELINE})
    if not isinstance(config, StdioServerConfig):
        return config
    policy = harmless(config.sandbox, config.sandbox.model_dump(mode="json")["network"])
    ours = os.path.realpath(state_dir())
    if is_within_any(ours, policy.read):
        policy = policy.model_copy(update={"hidden": (*policy.hidden, ours)})
    return config.model_copy(update={"sandbox": policy})


@contextmanager
def _throwaway(base: Path) -> Iterator[None]:
    """Within the block, keep our state and runtime directories below `base`."""
    os.chmod(base, 0o711)  # noqa: S103 - as root another user runs below it
    places = {STATE_DIR_VARIABLE: str(base / "state"), RUNTIME_DIR_VARIABLE: str(base / "run")}
    before = {name: os.environ.get(name) for name in places}
    os.environ.update(places)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
