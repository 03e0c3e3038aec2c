"""The options that several commands share."""

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
