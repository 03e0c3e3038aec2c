"""Configured servers as trust sees them: whose word each row is, how it is judged and launched, what it adds.  Pure.

`config.load.project.excesses` compares a project's row with the defaults; `loosens` compares a row with the one before.
Paths are compared as they are written; where links lead does not count.
"""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from quarterdeck.config.load.origin import Standing
from quarterdeck.config.native_tools import NativeSettings
from quarterdeck.config.web_policy import FetchPolicy
from quarterdeck_protocol.configs import AskMode, ServerConfig, StdioServerConfig, TrustMode
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import MAX_SEAL_BYTES, Network, NetworkMode, Preset, Tier
from quarterdeck_sandbox import is_within_any

from .documents import Document
from .launches import Launch

USER_SCOPE: Final = "user"
"""The user's own files, wherever they are found: what is decided of a server holds in all of them."""

COMMAND_SCOPE: Final = "run"
"""A command behind `quarterdeck run`, in no file; a server's id there names its command line."""

PROGRAM_SCOPE: Final = "program"
"""An embedding program, in no file.  Every other scope is the path of a file that was named, or a project's."""

NATIVE_ID: Final = "native.tools"
"""Stands for a server's id where the ledger and people name the key `native`; no server can have it."""


class LockedSeal(msgspec.Struct, frozen=True, omit_defaults=True):
    """The package tree that a server runs from: its digest, the words that ask for it, and the text of the lock that
    installs it.
    """

    digest: str
    words: str
    lock: str
    has_run_scripts: bool = False


class Lock(Protocol):
    """What a `deck.lock` admits of one server; beside it nothing is."""

    @property
    def seal(self) -> LockedSeal | None:
        """What it runs from; None if the lock does not say."""

    def admits(self, document: Document) -> bool:
        """Whether the lock names this form."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules for one server.

    Attributes:
        standing: whose word its row is.
        lock: admits only what it names, and approves nothing: a stranger may have written it. None without one.
        exposed: the file of its row that someone other than the user could have written; empty for none.
    """

    mode: TrustMode = TrustMode.BASELINE
    standing: Standing = Standing.NAMED
    lock: Lock | None = None
    exposed: str = field(default="", compare=False)


class OtherForm(msgspec.Struct, frozen=True):
    """The other form of a launch document; `is_fuller` says that it has each value of the row, not the names alone."""

    hash: str
    is_fuller: bool


class Locks(Protocol):
    """A `deck.lock`."""

    def for_server(self, server: str) -> Lock:
        """What it admits of one server."""


@dataclass(frozen=True, slots=True)
class ServerRow:
    """One configured server, by the ledger's `scope`.

    Attributes:
        start: how it would be started or reached.
        other_form, other_start: the other form of that, if its approval counts; see `judge_launch`.
        options: what a command needs to find it.
    """

    config: ServerConfig
    scope: str
    rules: Rules
    start: Launch
    other_form: OtherForm | None = field(default=None, compare=False)
    other_start: Launch | None = field(default=None, compare=False, repr=False)
    options: tuple[str, ...] = field(default=(), compare=False)

    @property
    def launch(self) -> Document:
        """How it would be started or reached, as the ledger keeps it."""
        return self.start.document

    @property
    def id(self) -> str:
        """The server's id."""
        return self.config.id

    def todays_hash(self, approved: str, body: bytes | None) -> str:
        """Return today's hash of a launch approved by this hash, of this document; `approved` if it is another."""
        forms = [form for form in (self.start, self.other_start) if form is not None]
        if any(form.document.hash == approved for form in forms):
            return approved
        return next((form.document.hash for form in forms if form.is_described_by(body)), approved)

    def command(self, verb: str, *words: str) -> str:
        """The `quarterdeck trust` command for it, to be typed anywhere but beside a project's own file."""
        return trust_command(verb, self.id, *words, options=self.options)

    @property
    def words(self) -> str:
        """What a command is told to find it."""
        return server_words(self.id, self.options)


@dataclass(frozen=True, slots=True)
class NativeRow:
    """The key `native`; `launch` is its approvable form, `exposed` and `options` as in `Rules` and `ServerRow`."""

    settings: NativeSettings
    scope: str
    launch: Document
    exposed: str = ""
    options: tuple[str, ...] = field(default=(), compare=False)
    id: str = NATIVE_ID

    def command(self, verb: str, *words: str) -> str:
        """Return the `quarterdeck trust` command for it."""
        return trust_command(verb, self.id, *words, options=self.options)


def trust_command(verb: str, server: str, *words: str, options: Iterable[str] = ()) -> str:
    """Return the `quarterdeck trust …` command line for one server; `options` let it find the server."""
    return shlex.join(["quarterdeck", "trust", verb, *([server] if server else []), *words, *options])


def server_words(server: str, options: Iterable[str] = ()) -> str:
    """What a command is told to find a server: its id, and `options`."""
    return shlex.join([server, *options])


_NETWORKS: Final = {
    NetworkMode.NONE: 0,
    NetworkMode.LOOPBACK: 1,
    NetworkMode.INTERNET: 2,
    None: 3,  # the default: the internet, and everything where a machine cannot give just that
    NetworkMode.FULL: 4,
}

_TIERS: Final = {Tier.BUBBLEWRAP: 0, Tier.LANDLOCK: 1, Tier.LIMITS: 2}

_ASK: Final = {AskMode.DENY: 0, AskMode.LABEL: 1, AskMode.ALLOW: 2}

_TRUST: Final = {TrustMode.STRICT: 0, TrustMode.BASELINE: 1, TrustMode.OPEN: 2}


def loosens(old: ServerConfig | None, new: ServerConfig) -> tuple[str, ...]:
    """The keys by which a server's row asks for more than before; a new one is held against the defaults."""
    return tuple(dict.fromkeys(_of_servers(old, new)))


def loosens_native(old: NativeSettings, new: NativeSettings) -> tuple[str, ...]:
    """The same of the key `native`."""
    found = [f"sandbox.{key}" for key in _of_policies(old.sandbox or SandboxPolicy(), new.sandbox or SandboxPolicy())]
    before, after = old.webfetch or FetchPolicy(), new.webfetch or FetchPolicy()
    if not set(after.allow) <= set(before.allow):
        found.append("webfetch.allow")
    if after.proxy != before.proxy:
        found.append("webfetch.proxy")  # every request goes through it
    return tuple(dict.fromkeys(found))


def _of_servers(old: ServerConfig | None, new: ServerConfig) -> Iterator[str]:
    if _TRUST[new.trust] > _TRUST[old.trust if old is not None else TrustMode.BASELINE]:
        yield "trust"
    if _ASK[new.ask] > _ASK[old.ask if old is not None else AskMode.LABEL]:
        yield "ask"
    if not isinstance(new, StdioServerConfig):
        return
    before = old if isinstance(old, StdioServerConfig) else None
    yield from _of_policies(before.sandbox if before is not None else SandboxPolicy(), new.sandbox)
    if not set(new.inherit_env) <= set(before.inherit_env if before is not None else ()):
        yield "inherit_env"
    if not new.seal and (before is None or before.seal):
        yield "seal"
    if new.max_seal_bytes > (before.max_seal_bytes if before is not None else MAX_SEAL_BYTES):
        yield "max_seal_bytes"


def _of_policies(old: SandboxPolicy, new: SandboxPolicy) -> Iterator[str]:
    if not old.confines_files:
        return  # it confined nothing: there is nothing beyond that
    if new.preset is Preset.TRUSTED:
        yield "preset"
    if _is_wider(old.network, new.network):
        yield "network"
    if not _are_within(new.read, (*old.read, *old.write)):
        yield "read"
    if not _are_within(new.write, old.write):
        yield "write"
    if not _are_within(old.hidden, new.hidden):
        yield "hidden"
    for key in ("grants", "environment"):
        if not set(getattr(new, key)) <= set(getattr(old, key)):
            yield key
    if not set(old.require) <= set(new.require):
        yield "require"
    if _TIERS[new.minimum] > _TIERS[old.minimum]:
        yield "minimum"
    for key, most in dict(old.limits).items():
        value = getattr(new.limits, key)
        if most is not None and (value is None or value > most):
            yield f"limits.{key}"


def _is_wider(old: Network | None, new: Network | None) -> bool:
    if old is NetworkMode.FULL:
        return False
    if isinstance(new, tuple):
        # A name may lead into the user's own network, which the internet is not: only what was listed is no more.
        return not isinstance(old, tuple) or not set(new) <= set(old)
    if isinstance(old, tuple):
        return _NETWORKS[new] > _NETWORKS[NetworkMode.LOOPBACK]
    return _NETWORKS[new] > _NETWORKS[old]


def _are_within(paths: Iterable[str], places: tuple[str, ...]) -> bool:
    return all(is_within_any(path, places) for path in paths)
