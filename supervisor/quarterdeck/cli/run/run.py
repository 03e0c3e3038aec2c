"""`quarterdeck run`: one server by its command line, isolated, under its tools' own names, on stdio or over HTTP."""

from typing import Annotated

from quarterdeck.cli import options
from quarterdeck.cli.log_setup import LogFormat, LogLevel
from quarterdeck.cli.parameters import Argument, Option
from quarterdeck.common.tool_names import DEFAULT_LIMIT
from quarterdeck.common.working_directory import working_directory
from quarterdeck.daemon.messages import CommandRequest, ServeRequest

from .sandbox_options import Wish
from .serve import FaceOptions, begin


def run(
    command: Annotated[list[str], Argument(metavar="-- COMMAND…", help="The server's command line.")],
    wish: Wish,
    face: FaceOptions,
    trust: Annotated[
        str, Option("--trust", metavar="MODE", help="When a tool may be called: baseline, strict or open.")
    ] = "baseline",
    http: Annotated[
        str | None,
        Option(
            "--http",
            metavar="HOST:PORT",
            help="Serve streamable HTTP there in place of stdio, within this process; port 0 lets the system choose.",
        ),
    ] = None,
    allow_unsandboxed: options.Unsandboxed = False,
    log_level: options.Level = LogLevel.INFO,
    log_format: options.Format = LogFormat.AUTO,
) -> None:
    """Serve one MCP server by its command line, on stdio or over HTTP: isolated, its tools under their own names.

    Put it before a command in any client's configuration. Without options the server sees its own home, its program and
    the internet. Its id, by which logs, ps and trust know it, is the name of its package or program and six digits of
    its command line; what it keeps and what was approved of it last from start to start.
    """
    http_wish = face.listens(http is not None, http)
    options.check_inherited(wish.inherit_env)
    request = ServeRequest(
        cwd=working_directory(),
        command=CommandRequest(
            words=tuple(command), sandbox=wish.sandbox, trust=trust, env=dict(wish.env), inherit_env=wish.inherit_env
        ),
        name_budget=DEFAULT_LIMIT,
        allow_unsandboxed=allow_unsandboxed,
    )
    begin(request, face, http_wish, log_level, log_format)
