"""The command line: find the command that is meant, run it, and turn every error into a line and an exit code.

Only the module of the command that runs is imported; help, version and unknown names need none.
"""

import errno
import os
import resource
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Final

from quarterdeck.common.words import printable

from .commands import BY_NAME, ENTRIES, OTHER_WORDS, PROGRAM, Entry, print_exit_codes, print_program_help
from .exits import CommandError, ExitCode, UsageError
from .process import InterruptedBySignal, OutputError, exit_code, is_serve, output_failure, starts_servers

if TYPE_CHECKING:
    import click

STATE_DIR_OPTION: Final = "--state-dir"

HELP_OPTIONS: Final = ("-h", "--help")

COMPLETE_VARIABLE: Final = "_QUARTERDECK_COMPLETE"
"""Set by a shell that asks for completions; see `configure.completion`."""

_GROUP: Final = "group"
"""The name of a module's group of commands."""


def make_program(entries: Iterable[Entry] = ENTRIES) -> "click.Group":
    """Return a command line of these commands, whose modules are imported."""
    from .parameters import Group, HelpfulGroup, make_command, make_group

    commands: list[click.Command] = []
    for entry in entries:
        module, _, attribute = entry.home.partition(":")
        target = getattr(import_module(f"quarterdeck.cli.{module}"), attribute)
        if isinstance(target, Group):
            commands.append(make_group(entry.name, target))
        else:
            commands.append(make_command(entry.name, target, verbatim=entry.verbatim))
    return HelpfulGroup(PROGRAM, commands, context_settings={"help_option_names": list(HELP_OPTIONS)})


def warm_up(arguments: Sequence[str]) -> None:
    """Start the zygote of a `serve` whose servers cannot sleep: both import at once. It ends with this process."""
    from quarterdeck.config.places.paths import knows_servers

    with suppress(CommandError):  # which `run` will tell
        if starts_servers(_take_state_dir(hoist_state_dir(arguments))) and not knows_servers():
            from quarterdeck.fleet.workers.interpreters import start_zygote_early

            start_zygote_early()


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code. An error is one or two lines on stderr."""
    # A core file could hold secrets.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    code = _end(arguments)
    failure = output_failure()
    if failure is None:
        return code
    if failure.number != errno.EPIPE:  # the reader has left: nobody reads an error either
        why = f"the output could not be written to stdout: {failure}"
        print_error(ExitCode.UNWRITTEN, why, "make room there, or redirect the output")
    return code or ExitCode.UNWRITTEN


def _end(arguments: Sequence[str]) -> int:
    try:
        return _run(hoist_state_dir(arguments))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.OK if end.code is None else ExitCode.INTERNAL
    except CommandError as error:
        print_error(error.code, error.message, error.remedy)
        return error.code
    except InterruptedBySignal as end:
        return exit_code(end.number, serves=is_serve(arguments))
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:
        return _end_unforeseen(error)


def _run(arguments: list[str]) -> int:
    if COMPLETE_VARIABLE in os.environ:
        return _complete(arguments)
    rest = _take_state_dir(arguments)
    match rest:
        case [] | ["help"] | ["-h" | "--help", *_]:
            print_program_help()
            return ExitCode.OK if rest else ExitCode.USAGE
        case ["--version", *_]:
            from quarterdeck_protocol.identity import CLIENT_VERSION

            sys.stdout.write(f"quarterdeck {CLIENT_VERSION}\n")
            return ExitCode.OK
        case ["help", "exit-codes"]:
            print_exit_codes()
            return ExitCode.OK
        case ["help", *path]:
            return _run([*path, "--help"])
    name = rest[0]
    if name.startswith("-"):
        raise UsageError(f"there is no option {name} before a command", "options follow the command's name")
    entry = BY_NAME.get(name)
    if entry is None:
        from quarterdeck_protocol.names import did_you_mean

        near = did_you_mean(name, BY_NAME)
        fix = OTHER_WORDS.get(name)
        raise UsageError(f"there is no command {name!r}{'' if fix else near}", fix or "quarterdeck --help lists them")
    return _invoke(entry, rest)


def _complete(arguments: list[str]) -> int:
    import click

    # Only the command that is typed is imported: of the others the names are enough.
    typed = next((word for word in os.environ.get("COMP_WORDS", "").split()[1:] if word in BY_NAME), None)
    program = make_program((BY_NAME[typed],) if typed else ())
    for entry in ENTRIES if typed is None else ():
        program.add_command(click.Command(entry.name, help=entry.summary))
    program.main(args=arguments, prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, standalone_mode=True)
    return ExitCode.OK


def _invoke(entry: Entry, arguments: list[str]) -> int:
    import click

    from quarterdeck_protocol.plain_words import plain_words

    program = make_program((entry,))
    if entry.home.endswith(_GROUP) and len(arguments) == 1:
        program.main(args=[*arguments, "--help"], prog_name=PROGRAM, standalone_mode=False)
        return ExitCode.USAGE
    try:
        ended = program.main(args=arguments, prog_name=PROGRAM, standalone_mode=False)
    except click.Abort:
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        path = context.command_path if context is not None else f"{PROGRAM} {entry.name}"
        raise UsageError(plain_words(error.format_message().rstrip(".")), f"see {path} --help") from None
    return ended if isinstance(ended, int) else ExitCode.OK


def hoist_state_dir(arguments: Sequence[str]) -> list[str]:
    """Move `--state-dir`, which any command may be given, before the command; nothing after `--` is moved."""
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


def _take_state_dir(arguments: list[str]) -> list[str]:
    """Set the state directory of this process. Return the arguments from the command on."""
    rest = list(arguments)
    while rest and rest[0].partition("=")[0] == STATE_DIR_OPTION:
        option, has_value, value = rest.pop(0).partition("=")
        if not has_value:
            if not rest:
                raise UsageError(f"{option} needs a directory", f"give one: {option} DIR")
            value = rest.pop(0)
        from quarterdeck.config.places.paths import name_state_dir

        name_state_dir(value)
    return rest


def _end_unforeseen(error: Exception) -> int:
    """Return the exit code of an unexpected exception: stdout that cannot be written, or a bug."""
    import logging

    logging.getLogger("quarterdeck").debug("an unforeseen error", exc_info=error)
    cause: Exception = error
    while isinstance(cause, ExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, OutputError):
        return ExitCode.UNWRITTEN
    print_error(
        ExitCode.INTERNAL,
        f"an unforeseen error: {type(cause).__name__}: {cause}",
        "this is a bug in quarterdeck: please report it, with what --log-level debug shows",
    )
    return ExitCode.INTERNAL


def print_error(code: ExitCode, message: str, remedy: str | None) -> None:
    """Print an error and its fix on stderr, a line each; a client that waits for `serve` is answered with them."""
    from quarterdeck.host.stdio.client_streams import expect_client, refuse_waiting_client

    from . import process
    from .output import print_line

    if process.has_client(sys.argv[1:]):
        expect_client()  # a door's client is read by nobody before its command line is understood

    print_line(f"error[{code.name.lower()}]: {message}", "red", stderr=True)
    if remedy:
        print_line(f"  fix: {remedy}", stderr=True)
    refuse_waiting_client(printable(f"{message}; {remedy}" if remedy else message))
