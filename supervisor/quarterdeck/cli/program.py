"""The command line as typer sees it, and the one place where errors become a line and an exit code."""

import errno
import logging
import os
import resource
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer

from quarterdeck.cli import (
    checkpoint,
    config,
    demo,
    doctor,
    inspect,
    ledger,
    link,
    lock,
    logs,
    purge,
    sandbox,
    secret,
    serve,
    servers,
    token,
    tools,
    trust,
)
from quarterdeck.cli.exits import MEANINGS, CommandError, ExitCode
from quarterdeck.cli.output import print_line
from quarterdeck.cli.signals import InterruptedBySignal, exit_code, is_serve
from quarterdeck.cli.streams import OutputError, output_failure
from quarterdeck.cli.text import printable
from quarterdeck.config.paths import STATE_DIR_VARIABLE

STATE_DIR_OPTION: Final = "--state-dir"

EPILOG: Final = "\n\n".join(["Exit codes:", *(f"{code:3d}  {meaning}" for code, meaning in MEANINGS.items())])


def make_program() -> typer.Typer:
    """The whole command line."""
    program = typer.Typer(
        name="quarterdeck",
        help="Run MCP servers that you do not trust, each in its own isolated worker, published as one MCP server.",
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    program.callback()(_root)
    program.command("serve")(serve.serve)
    program.command("tools")(tools.tools)
    program.command("call")(tools.call)
    program.command("ps")(servers.ps)
    program.command("inspect")(inspect.inspect)
    program.command("logs")(logs.logs)
    program.command("restart")(servers.restart)
    program.add_typer(trust.group, name="trust")
    program.add_typer(ledger.group, name="ledger")
    program.command("lock")(lock.lock)
    program.add_typer(config.group, name="config")
    program.add_typer(secret.group, name="secret")
    program.command("link")(link.link)
    program.command("unlink")(link.unlink)
    program.command("purge")(purge.purge)
    program.add_typer(sandbox.group, name="sandbox")
    program.add_typer(token.group, name="token")
    program.add_typer(checkpoint.group, name="checkpoint")
    program.command("doctor")(doctor.doctor)
    program.command("demo")(demo.demo)
    return program


def run(arguments: Sequence[str]) -> int:
    """Run one command; its exit code.  Whatever goes wrong is said in a line or two, on stderr."""
    # What a crash leaves behind could hold secrets.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    code = _run(arguments)
    failure = output_failure()
    if failure is None:
        return code
    if failure.number != errno.EPIPE:  # whoever left wants to hear no more
        why = f"what it had to say could not be written to stdout: {failure}"
        _complain(why, "make room there, or have it written elsewhere")
    return code or ExitCode.UNWRITTEN


def _run(arguments: Sequence[str]) -> int:
    try:
        make_program()(args=hoist_state_dir(arguments), prog_name="quarterdeck")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.OK if end.code is None else ExitCode.INTERNAL
    except CommandError as error:
        _complain(error.message, error.remedy)
        return error.code
    except InterruptedBySignal as end:
        return exit_code(end.number, serves=is_serve(arguments))
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:
        logging.getLogger("quarterdeck").debug("an unforeseen error", exc_info=True)
        cause = error
        while isinstance(cause, ExceptionGroup):
            cause = cause.exceptions[0]
        if isinstance(cause, OutputError):
            return ExitCode.UNWRITTEN
        _complain(
            f"an unforeseen error: {type(cause).__name__}: {cause}",
            "this is a bug of ours: please report it, with what --log-level debug shows",
        )
        return ExitCode.INTERNAL
    return ExitCode.OK


def hoist_state_dir(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--state-dir`, which any command may be given, before the command; not what follows `--`."""
    hoisted: list[str] = []
    rest: list[str] = []
    pending = iter(arguments)
    for argument in pending:
        if argument == "--":
            rest += [argument, *pending]
        elif argument == STATE_DIR_OPTION:
            hoisted += [argument, *islice(pending, 1)]
        elif argument.startswith(f"{STATE_DIR_OPTION}="):
            hoisted.append(argument)
        else:
            rest.append(argument)
    return hoisted + rest


def _version(wanted: bool) -> None:
    if wanted:
        from quarterdeck.identity import CLIENT_VERSION

        typer.echo(f"quarterdeck {CLIENT_VERSION}")
        raise typer.Exit


def _root(
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_version),
    ] = False,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            STATE_DIR_OPTION,
            metavar="DIR",
            envvar=STATE_DIR_VARIABLE,
            help="Where ledger, homes and logs are kept, for any command, before or after its name.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Say where state is kept; the commands do the work."""
    if state_dir is not None:
        # Whoever asks for the directory looks here.
        os.environ[STATE_DIR_VARIABLE] = str(state_dir)


def _complain(message: str, remedy: str | None) -> None:
    print_line(f"quarterdeck: {printable(message)}", "red", stderr=True)
    if remedy:
        print_line(f"  {printable(remedy)}", stderr=True)
