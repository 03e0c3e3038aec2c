"""The options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from quarterdeck.cli.log_setup import LogFormat, LogLevel

Config = Annotated[
    list[Path] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        envvar="QUARTERDECK_CONFIG",
        help="A file that names servers (mcpServers or servers); may be repeated, the earlier one wins.",
        show_default=False,
    ),
]


class ProfileName(StrEnum):
    """The sets of native tools, as `quarterdeck.deck` knows them: not imported for a command's help."""

    AUTHORING = "authoring"
    SURVEY = "survey"
    ALL = "all"


Profile = Annotated[
    ProfileName | None,
    typer.Option(
        "--profile",
        help="Offer native tools too: authoring only looks, survey also changes files and runs commands, all adds "
        "a note, plans, sub-agents and more.",
        show_default=False,
    ),
]

Workspace = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        metavar="DIR",
        help="With --profile: where native tools work; the current directory unless told otherwise.",
        show_default=False,
    ),
]

AllowDir = Annotated[
    list[Path] | None,
    typer.Option(
        "--allow-dir",
        metavar="DIR",
        help="With --profile: a further directory, or one file, that native tools may change; may be repeated.",
        show_default=False,
    ),
]

Tools = Annotated[
    str | None,
    typer.Option(
        "--tools", metavar="A,B,…", help="With --profile: of its native tools only these.", show_default=False
    ),
]

Own = Annotated[
    bool,
    typer.Option(
        "--own", help="Start the servers for this command alone, even when a serve of this configuration runs."
    ),
]

Unsandboxed = Annotated[
    bool,
    typer.Option(
        "--allow-unsandboxed",
        help="Start servers even where nothing but limits confines them; a serve that runs already is not changed.",
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

Level = Annotated[
    LogLevel, typer.Option("--log-level", envvar="QUARTERDECK_LOG_LEVEL", help="The least severe log lines to show.")
]

Format = Annotated[
    LogFormat,
    typer.Option(
        "--log-format", envvar="QUARTERDECK_LOG_FORMAT", help="How log lines look; auto: JSON unless on a terminal."
    ),
]
