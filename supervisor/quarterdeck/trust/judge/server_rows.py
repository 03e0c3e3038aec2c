"""Configured servers as trust sees them: whose word each row is, how it is judged, how it would be launched.  Pure."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from quarterdeck.config.native_tools import NativeSettings
from quarterdeck_protocol.configs import ServerConfig

from .documents import Document
from .launches import Launch
from .verdicts import Lock, OtherForm, Rules

USER_SCOPE: Final = "user"
"""The user's own files, wherever they are found: what is decided of a server holds in all of them."""

PROGRAM_SCOPE: Final = "program"
"""An embedding program, in no file.  Every other scope is the path of a file that was named, or a project's."""

NATIVE_ID: Final = "native.tools"
"""Stands for a server's id where the ledger and people name the key `native`; no server can have it."""


class Locks(Protocol):
    """A `deck.lock`."""

    def for_server(self, server: str) -> Lock:
        """What it admits of one server."""
        ...


@dataclass(frozen=True, slots=True)
class ServerRow:
    """One configured server.

    Attributes:
        scope: how the ledger names what configures it.
        start: how it would be started or reached.
        other_form: the other form of that, when its approval counts; see `judge_launch`.
        other_start: the same whole.
        options: what a command must be given to find it.
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
        """The hash that an approved launch has in today's form; its own where it is another launch.

        Args:
            approved: the hash that it was approved by.
            body: its document; None where there is none.
        """
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
    """What the configuration says of native tools.

    Attributes:
        launch: the same as what can be approved.
        exposed: one of the files that another than the user could have written before now; empty for none.
        options: what a command must be given to find it.
    """

    settings: NativeSettings
    scope: str
    launch: Document
    exposed: str = ""
    options: tuple[str, ...] = field(default=(), compare=False)
    id: str = NATIVE_ID

    def command(self, verb: str, *words: str) -> str:
        """The `quarterdeck trust` command for it."""
        return trust_command(verb, self.id, *words, options=self.options)


def trust_command(verb: str, server: str, *words: str, options: Iterable[str] = ()) -> str:
    """The command line of `quarterdeck trust …` for one server; `options` let it find the server."""
    return shlex.join(["quarterdeck", "trust", verb, *([server] if server else []), *words, *options])


def server_words(server: str, options: Iterable[str] = ()) -> str:
    """What a command is told to find a server: its id, and `options`."""
    return shlex.join([server, *options])
