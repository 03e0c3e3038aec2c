"""The options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from .log_setup import LogFormat, LogLevel
from .parameters import Option

Config = Annotated[
    list[Path] | None,
    Option(
        "--config",
        "-c",
        metavar="FILE",
        envvar="QUARTERDECK_CONFIG",
        help="A file that lists servers (mcpServers or servers); may be repeated, the earlier one wins.",
        show_default=False,
    ),
]


class ProfileName(StrEnum):
    """The sets of native tools, by the names of the command line and by those of `quarterdeck.deck`."""

    READ_ONLY = "read-only"
    WORKSPACE = "workspace"
    ALL = "all"
    AUTHORING = "authoring"
    SURVEY = "survey"

    @property
    def in_deck(self) -> str:
        """What `quarterdeck.deck` calls it; it is not imported for a command's help."""
        return _IN_DECK.get(self, self.value)

    @property
    def shown(self) -> "ProfileName":
        """What it is called here."""
        return next((name for name, alias in _IN_DECK.items() if alias == self.value), self)


_IN_DECK: Final = {ProfileName.READ_ONLY: "authoring", ProfileName.WORKSPACE: "survey"}

Profile = Annotated[
    ProfileName | None,
    Option(
        "--profile",
        metavar="read-only|workspace|all",
        help="Offer native tools too: read-only changes nothing, workspace also writes files and runs commands, all "
        "adds a note, plans, sub-agents and more.",
        show_default=False,
    ),
]

Workspace = Annotated[
    Path | None,
    Option(
        "--workspace",
        metavar="DIR",
        help="With --profile: where native tools work; the current directory unless told otherwise.",
        show_default=False,
    ),
]

AllowDir = Annotated[
    list[Path] | None,
    Option(
        "--allow-dir",
        metavar="DIR",
        help="With --profile: a further directory, or one file, that native tools may change; may be repeated.",
        show_default=False,
    ),
]

Tools = Annotated[
    str | None,
    Option("--tools", metavar="A,B,…", help="With --profile: only these native tools.", show_default=False),
]

Own = Annotated[
    bool,
    Option("--own", help="Start the servers for this command alone, even when a serve of this configuration runs."),
]

Unsandboxed = Annotated[
    bool,
    Option(
        "--allow-unsandboxed",
        help="Start servers even where only resource limits confine them; does not affect a running serve.",
    ),
]

Json = Annotated[bool, Option("--json", help="Print JSON for programs.")]

Level = Annotated[
    LogLevel,
    Option(
        "--log-level",
        metavar="LEVEL",
        envvar="QUARTERDECK_LOG_LEVEL",
        help="The least severe log lines to show: debug, info, warning, error.",
    ),
]

Format = Annotated[
    LogFormat,
    Option(
        "--log-format",
        metavar="FORMAT",
        envvar="QUARTERDECK_LOG_FORMAT",
        help="How log lines look: console, json, or auto: json unless on a terminal.",
    ),
]
