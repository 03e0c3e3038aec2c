"""`quarterdeck run`: one server by its command line, isolated, under its tools' own names, on stdio or over HTTP."""

from functools import partial
from typing import Annotated

from quarterdeck.cli import options
from quarterdeck.cli.log_setup import LogFormat, LogLevel, set_up_logging
from quarterdeck.cli.parameters import Argument, Option
from quarterdeck.common.tool_names import DEFAULT_LIMIT
from quarterdeck.common.working_directory import working_directory
from quarterdeck.daemon.messages import CommandRequest, ServeRequest

from .sandbox_options import Wish
from .serve import check_read_only, check_streams, serve_alone, serve_by_daemon, serve_listening, tell_hand


def run(
    command: Annotated[list[str], Argument(metavar="-- COMMAND…", help="The server's command line.")],
    wish: Wish,
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
    no_token: options.NoToken = False,
    allow_remote: options.AllowRemote = False,
    allow_host: options.AllowHost = None,
    json: options.JsonUrl = False,
    own: options.WithoutDaemon = False,
    read_only: options.ReadOnly = False,
    allow_unsandboxed: options.Unsandboxed = False,
    log_level: options.Level = LogLevel.INFO,
    log_format: options.Format = LogFormat.AUTO,
) -> None:
    """Serve one MCP server by its command line, on stdio or over HTTP: isolated, its tools under their own names.

    Put it before a command in any client's configuration. Without options the server sees its own home, its program and
    the internet. Its id, by which logs, ps and trust know it, is the name of its package or program and six digits of
    its command line; what it keeps and what was approved of it last from start to start.
    """
    http_words = {"--no-token": no_token, "--json": json}
    http_wish = options.http_wish(http is not None, http, allow_remote, allow_host, **http_words)
    check_read_only(read_only=read_only, is_here=own or http_wish is not None)
    if http_wish is None:
        check_streams()
    options.check_inherited(wish.inherit_env)
    request = ServeRequest(
        cwd=working_directory(),
        command=CommandRequest(
            words=tuple(command), sandbox=wish.sandbox, trust=trust, env=dict(wish.env), inherit_env=wish.inherit_env
        ),
        name_budget=DEFAULT_LIMIT,
        allow_unsandboxed=allow_unsandboxed,
    )
    withhold = partial(set_up_logging, log_level, log_format)
    withhold(())
    if http_wish is not None:
        serve_listening(request, withhold, http_wish, needs_token=not no_token, announce=json, visits=read_only)
    elif own:
        tell_hand()
        serve_alone(request, withhold, visits=read_only)
    else:
        serve_by_daemon(request, log_level, log_format, withhold)
