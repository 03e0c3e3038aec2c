"""`quarterdeck check`: what a server does with what clients send, found by trying, in a sandbox, with no code."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import click
import msgspec
from click.core import ParameterSource

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, UsageError, as_command_error
from quarterdeck.cli.output import print_json, waiting_for
from quarterdeck.cli.parameters import HAS_DASHES, Argument, Option
from quarterdeck.cli.process import run as run_work
from quarterdeck.cli.run.sandbox_options import POLICY_HELP, HarmlessWish, SandboxWish, to_policy
from quarterdeck.common.run_options import in_options
from quarterdeck.common.words import flat

from .check_view import print_report

if TYPE_CHECKING:
    from quarterdeck.check.verdicts import Report
    from quarterdeck_protocol.configs import ServerConfig
    from quarterdeck_protocol.policy import SandboxPolicy


class FailOn(StrEnum):
    """From which severity on the exit code is 1."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    NEVER = "never"


LEAST_TIMEOUT_S: Final = 10


def check(
    command: Annotated[
        list[str],
        Argument(
            metavar="-- COMMAND…",
            help="The server's command line; {dir} in it is a folder that the server may change. Or a configured "
            "server's id.",
            show_default=False,
        ),
    ],
    wish: HarmlessWish,
    config: options.Config = None,
    timeout: Annotated[
        int, Option("--timeout", metavar="SECONDS", help="What is not tried by then is left out.", min=LEAST_TIMEOUT_S)
    ] = 300,
    call_timeout: Annotated[
        int, Option("--call-timeout", metavar="SECONDS", help="How long one call may take.", min=1)
    ] = 10,
    call_all: Annotated[
        bool, Option("--call-all", help="Of a remote server, call tools too that do not say that they only read.")
    ] = False,
    no_calls: Annotated[bool, Option("--no-calls", help="Call no tool, get no prompt, read no resource.")] = False,
    ignore: Annotated[
        list[str] | None,
        Option("--ignore", metavar="CHECK", help="Ignore the findings of this check.", show_default=False),
    ] = None,
    fail_on: Annotated[
        FailOn,
        Option(
            "--fail-on",
            metavar="SEVERITY",
            help="Exit with 1 for findings this severe or worse: error, warning, note, never.",
        ),
    ] = FailOn.ERROR,
    junit: Annotated[
        Path | None, Option("--junit", metavar="FILE", help="Write JUnit XML there too.", show_default=False)
    ] = None,
    sarif: Annotated[
        Path | None, Option("--sarif", metavar="FILE", help="Write SARIF there too.", show_default=False)
    ] = None,
    all_: Annotated[bool, Option("--all", help="Show what passed and what was not tried, too.")] = False,
    json: options.Json = False,
    allow_unsandboxed: options.Unsandboxed = False,
) -> None:
    """Try a server: greetings, lists, schemas, every tool with made-up arguments, wrong requests, odd bytes, endings.

    It runs confined, in throwaway directories, without a network unless --network says otherwise; only a package
    runner such as npx is given one, once, to fetch its package. What its tools touched is compared
    with their annotations.

    A configured remote server is not confined: only tools with readOnlyHint are called.

    Exit codes: 0 nothing found that is as bad as --fail-on, 1 something is, 4 it cannot be started.
    """
    from quarterdeck.check.run import check as check_server
    from quarterdeck.check.run import check_remote
    from quarterdeck.check.scenario import Wishes
    from quarterdeck_protocol.configs import StdioServerConfig
    from quarterdeck_sandbox import LaunchError

    _check_ignored(ignore or ())
    context = click.get_current_context()
    if not context.meta[HAS_DASHES]:
        command, after = files_after_id(command)
        is_typed = context.get_parameter_source("config") is ParameterSource.COMMANDLINE
        config = [*((config or ()) if is_typed else ()), *after] if after else config
    subject = _subject(command, wish, config)
    server, ignored = subject.config, ignore or ()
    with waiting_for(f"starting {subject.called}", is_shown=not json) as show:
        wishes = Wishes(
            float(timeout),
            float(call_timeout),
            calls=not no_calls,
            call_all=call_all,
            tell=lambda what: show(f"trying {what}"),
        )
        try:
            if isinstance(server, StdioServerConfig):
                report = run_work(
                    lambda: check_server(
                        server,
                        wishes,
                        called=subject.called,
                        installs=subject.installs,
                        allow_unsandboxed=allow_unsandboxed,
                        ignored=ignored,
                        secrets=subject.secrets,
                    )
                )
            else:
                report = run_work(
                    lambda: check_remote(
                        server, wishes, called=subject.called, ignored=ignored, secrets=subject.secrets
                    )
                )
        except LaunchError as error:
            raise CommandError(
                ExitCode.NOT_READY, f"it cannot be started: {flat(in_options(str(error)))}", _remedy(command[0])
            ) from error
    _write_files(report, subject.file, junit, sarif, fail_on)
    if json:
        from quarterdeck.check.report.as_json import as_json

        print_json(as_json(report))
    else:
        print_report(report, in_full=all_)
    if report.fails(fail_on):
        raise click.exceptions.Exit(ExitCode.TOOL_ERROR)


def files_after_id(command: list[str]) -> tuple[list[str], list[Path]]:
    """The words without the configurations that follow an id, `SERVER -c FILE`, and those.

    A command line is left as it is: what follows `-c` there is no file.
    """
    first, options, paths = command[0], command[1::2], [Path(word) for word in command[2::2]]
    are_files = len(options) == len(paths) and all(path.is_file() for path in paths)
    if "/" in first or not paths or not are_files or not {"-c", "--config"}.issuperset(options):
        return command, []
    return [first], paths


def _remedy(word: str) -> str:
    """What to do about a first word that starts nothing: one without a slash may be meant as a server's id."""
    if "/" in word:
        return "try its command by hand: quarterdeck sandbox run -- COMMAND"
    return (
        "for a configured server (quarterdeck config show lists them), options first: quarterdeck check -c FILE SERVER"
    )


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is checked; `file` is where its findings are shown by code scanning."""

    config: "ServerConfig"
    called: str
    installs: bool
    file: str
    secrets: tuple[str, ...] = ()


def _subject(command: Sequence[str], wish: SandboxWish, config: "list[Path] | None") -> _Subject:
    """The server that is meant: a configured one where the only word is its id, else a command line.

    Raises:
        CommandError: an option is wrong, or the server is none that can be checked.
    """
    if len(command) == 1 and "/" not in command[0] and (found := _configured(command[0], wish, config)) is not None:
        return found
    if command[0].startswith(("http://", "https://")):
        raise UsageError(
            f"a remote server is checked by the id of its row, not by {flat(command[0])}",
            "quarterdeck add URL writes one; then quarterdeck check SERVER",
        )
    if config:
        raise UsageError(
            f"there is no server {command[0]!r} in that configuration", "quarterdeck config show lists them"
        )
    return _command(command, wish)


def _command(command: Sequence[str], wish: SandboxWish) -> _Subject:
    from pydantic import ValidationError

    from quarterdeck.cli.run.command_server import server_id
    from quarterdeck.trust.package_request import runner_of
    from quarterdeck_protocol.configs import StdioServerConfig
    from quarterdeck_protocol.secrets import secret_values

    if unset := [name for name in wish.inherit_env if name not in os.environ]:
        raise UsageError(f"--env {unset[0]}: there is no such variable", f"set it: --env {unset[0]}=VALUE")
    words = [_absolute(word) for word in command]
    with as_command_error(ValidationError, remedy=POLICY_HELP, what="the command cannot be checked: "):
        server = StdioServerConfig(
            id=server_id(command),
            command=words[0],
            args=tuple(words[1:]),
            env=wish.env,
            inherit_env=wish.inherit_env,
            sandbox=_policy(to_policy(wish.sandbox), wish),
        )
    secrets = secret_values({name: os.environ[name] for name in wish.inherit_env} | dict(wish.env))
    file = next((word for word in command if os.path.isfile(word)), command[0])
    return _Subject(server, " ".join(command), runner_of(words[0], words[1:]) is not None, file, tuple(secrets))


def _configured(server: str, wish: SandboxWish, config: "list[Path] | None") -> _Subject | None:
    """The configured server of this id; None where none is called so."""
    from quarterdeck.cli.source import Source, read_settings
    from quarterdeck.config.load.file import ConfigFileError
    from quarterdeck.config.load.origin import Standing
    from quarterdeck.trust.package_request import runner_of
    from quarterdeck_protocol.configs import SseServerConfig, StdioServerConfig

    with as_command_error(ConfigFileError, remedy="correct that file, or name another with -c FILE"):
        settings = read_settings(Source(tuple(config or ())))
    found = next((each for each in settings.servers if each.id == server), None)
    if found is None:
        return None
    asked = msgspec.json.decode(wish.sandbox).keys()
    if wish.env or wish.inherit_env or asked - {"network"}:
        raise UsageError(f"of {server} its row says what it may see", "give no option but --network")
    origin = settings.origins.get(server)
    if origin is not None and origin.standing is Standing.PROJECT:
        place = f"{origin.path}, which lies in this directory and is not yet your word"
        raise UsageError(
            f"{server} is written in {place}", f"name the file: quarterdeck check -c {origin.path} {server}"
        )
    file = str(origin.path) if origin is not None and origin.path is not None else server
    if not isinstance(found, StdioServerConfig):
        if asked:
            raise UsageError(f"{server} is remote: no sandbox is around it", "leave --network out")
        if isinstance(found, SseServerConfig) and found.legacy_only:
            raise UsageError(
                f"{server} speaks the SSE transport of 2024-11-05, which check does not know",
                "give the URL of its streamable HTTP transport",
            )
        return _Subject(found, server, installs=False, file=file, secrets=tuple(settings.secrets))
    row = found.model_copy(update={"sandbox": _policy(found.sandbox, wish)})
    return _Subject(row, server, runner_of(found.command, found.args) is not None, file, tuple(settings.secrets))


def _policy(policy: "SandboxPolicy", wish: SandboxWish) -> "SandboxPolicy":
    """What the server may reach while its tools are called with made-up values: it may change nothing of anyone's.

    Raises:
        CommandError: an option wants more than that.
    """
    from pydantic import ValidationError

    from quarterdeck.check.place import harmless

    asked = msgspec.json.decode(wish.sandbox)
    for key in ("write", "grants"):
        if asked.get(key):
            raise UsageError(
                f'--policy: its "{key}" would let made-up calls change or use what is yours',
                "use {dir} in the command line for a folder that the server may change, --read for one to look at",
            )
    with as_command_error(ValidationError, remedy=POLICY_HELP, what="the policy is wrong: "):
        return harmless(policy, asked.get("network", "none"))


def _absolute(word: str) -> str:
    """A file that is named from here is named from anywhere: the server runs in a folder of its own."""
    return os.path.abspath(word) if not word.startswith("-") and os.path.isfile(word) else word


def _check_ignored(ignored: Sequence[str]) -> None:
    """Check that these are checks.

    Raises:
        CommandError: one is none.
    """
    from quarterdeck.check.catalogue import BY_ID
    from quarterdeck_protocol.names import did_you_mean

    for name in ignored:
        if name not in BY_ID:
            hint = did_you_mean(name, list(BY_ID), "checks") or ""
            raise UsageError(f"--ignore {name}: there is no such check{hint}", "--all lists them all")


def _write_files(report: "Report", file: str, junit: Path | None, sarif: Path | None, fail_on: str) -> None:
    """Write what is for other programs.

    Raises:
        CommandError: one cannot be written.
    """
    with as_command_error(OSError, remedy="name files that you may write", what="the report cannot be written: "):
        if junit is not None:
            from quarterdeck.check.report.as_junit import as_junit

            junit.write_text(as_junit(report, fail_on), encoding="utf-8")
        if sarif is not None:
            from quarterdeck.check.report.as_sarif import as_sarif

            sarif.write_bytes(msgspec.json.encode(as_sarif(report, file)) + b"\n")
