"""`quarterdeck check`: what a server does with what clients send, found by trying, in a sandbox, with no code."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import click
import msgspec
from click.core import ParameterSource
from pydantic import ValidationError

from quarterdeck.check.catalogue import BY_ID, Severity
from quarterdeck.check.place import harmless
from quarterdeck.check.report import as_json, as_junit, as_sarif
from quarterdeck.check.run import check as check_server
from quarterdeck.check.scenario import Wishes
from quarterdeck.check.verdicts import Outcome, Report, State
from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, UsageError, as_command_error
from quarterdeck.cli.find.sealing import sealed_server
from quarterdeck.cli.observed_view import print_observed
from quarterdeck.cli.output import Cell, print_json, print_line, print_paragraph, print_table, waiting_for
from quarterdeck.cli.parameters import HAS_DASHES, Argument, Option
from quarterdeck.cli.process import run as run_work
from quarterdeck.cli.run.command_server import server_id
from quarterdeck.cli.run.sandbox_options import POLICY_HELP, HarmlessWish, SandboxWish, to_policy
from quarterdeck.cli.source import Source, read_settings
from quarterdeck.common.run_options import in_options
from quarterdeck.common.words import counted, duration, flat, printable, size
from quarterdeck.config.load.file import ConfigFileError
from quarterdeck.config.load.origin import Standing
from quarterdeck.config.load.problems import RowError
from quarterdeck.config.secrets.store import SecretError
from quarterdeck.seals.request import runner_of
from quarterdeck_protocol.configs import ServerConfig, SseServerConfig, StdioServerConfig
from quarterdeck_protocol.names import did_you_mean
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.secrets import secret_values
from quarterdeck_sandbox import LaunchError


class FailOn(StrEnum):
    """The least severity that makes the exit code 1."""

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
        ),
    ],
    wish: HarmlessWish,
    config: options.Config = None,
    timeout: Annotated[
        int, Option(metavar="SECONDS", help="What is not tried by then is left out.", min=LEAST_TIMEOUT_S)
    ] = 300,
    call_timeout: Annotated[int, Option(metavar="SECONDS", help="How long one call may take.", min=1)] = 10,
    call_all: Annotated[
        bool, Option(help="Of a remote server, call tools too that do not say that they only read.")
    ] = False,
    no_calls: Annotated[bool, Option(help="Call no tool, get no prompt, read no resource.")] = False,
    ignore: Annotated[list[str] | None, Option(metavar="CHECK", help="Ignore the findings of this check.")] = None,
    fail_on: Annotated[
        FailOn,
        Option(metavar="SEVERITY", help="Exit with 1 for findings this severe or worse: error, warning, note, never."),
    ] = FailOn.ERROR,
    junit: Annotated[Path | None, Option(metavar="FILE", help="Write JUnit XML there too.")] = None,
    sarif: Annotated[Path | None, Option(metavar="FILE", help="Write SARIF there too.")] = None,
    all_: Annotated[bool, Option("--all", help="Show what passed and what was not tried, too.")] = False,
    json: options.Json = False,
    allow_unsandboxed: options.Unsandboxed = False,
) -> None:
    """Try a server: greetings, lists, schemas, every tool with made-up arguments, wrong requests, odd bytes, endings.

    It runs confined, in throwaway directories, without a network unless --network says otherwise. The package that a
    runner such as npx would fetch is sealed first. What its tools touched is compared with their annotations.

    A configured remote server is not confined: only tools with readOnlyHint are called.

    Exit codes: 0 nothing found that is as bad as --fail-on, 1 something is, 4 it cannot be started.
    """
    for name in ignore or ():
        if name not in BY_ID:
            known = did_you_mean(name, list(BY_ID), "checks") or ""
            raise UsageError(f"--ignore {name}: there is no such check{known}", "--all lists them all")
    context = click.get_current_context()
    if not context.meta[HAS_DASHES]:
        command, after = files_after_id(command)
        is_typed = context.get_parameter_source("config") is ParameterSource.COMMANDLINE
        config = [*((config or ()) if is_typed else ()), *after] if after else config
    subject = _subject(command, wish, config)
    sealed = sealed_server(subject.config, is_shown=not json, allow_unsandboxed=allow_unsandboxed)
    if sealed is not None:
        subject = replace(subject, config=sealed, installs=False)

    with waiting_for(f"starting {subject.called}", is_shown=not json) as show:
        wishes = Wishes(
            float(timeout),
            float(call_timeout),
            calls=not no_calls,
            call_all=call_all,
            tell=lambda what: show(f"trying {what}"),
        )
        try:
            report = run_work(
                lambda: check_server(
                    subject.config,
                    wishes,
                    called=subject.called,
                    installs=subject.installs,
                    allow_unsandboxed=allow_unsandboxed,
                    ignored=ignore or (),
                    secrets=subject.secrets,
                )
            )
        except LaunchError as error:
            remedy = "try its command by hand: quarterdeck sandbox run -- COMMAND"
            if "/" not in command[0]:  # it may be meant as a server's id
                listed = "for a configured server (quarterdeck config show lists them), options first"
                remedy = f"{listed}: quarterdeck check -c FILE SERVER"
            why = f"it cannot be started: {flat(in_options(str(error)))}"
            raise CommandError(ExitCode.NOT_READY, why, remedy) from error
    with as_command_error(OSError, remedy="name files that you may write", what="the report cannot be written: "):
        if junit is not None:
            junit.write_text(as_junit(report, fail_on), encoding="utf-8")
        if sarif is not None:
            sarif.write_bytes(msgspec.json.encode(as_sarif(report, subject.file)) + b"\n")
    if json:
        print_json(as_json(report))
    else:
        print_report(report, in_full=all_)
    if report.fails(fail_on):
        raise SystemExit(ExitCode.TOOL_ERROR)


def files_after_id(command: list[str]) -> tuple[list[str], list[Path]]:
    """Split `SERVER -c FILE…` into the server's id and the files.

    A command line is returned unchanged: what follows `-c` in it is no file.
    """
    first, options, paths = command[0], command[1::2], [Path(word) for word in command[2::2]]
    are_files = len(options) == len(paths) and all(path.is_file() for path in paths)
    if "/" in first or not paths or not are_files or not {"-c", "--config"}.issuperset(options):
        return command, []
    return [first], paths


@dataclass(frozen=True, slots=True)
class _Subject:
    config: ServerConfig
    called: str
    installs: bool
    file: str
    secrets: tuple[str, ...] = ()


def _subject(command: Sequence[str], wish: SandboxWish, config: list[Path] | None) -> _Subject:
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
    options.check_inherited(wish.inherit_env)
    # A file by its absolute path, as the server runs in a folder of its own.
    files = {word: os.path.abspath(word) for word in command if not word.startswith("-") and os.path.isfile(word)}
    words = [files.get(word, word) for word in command]
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


def _configured(server: str, wish: SandboxWish, config: list[Path] | None) -> _Subject | None:
    with as_command_error(ConfigFileError, remedy="correct that file, or name another with -c FILE"):
        settings = read_settings(Source(tuple(config or ())))
    found = next((each for each in settings.servers if each.id == server), None)
    if found is None:
        return None
    with as_command_error(SecretError, RowError, remedy="store it, then check again"):
        settings = settings.only(server).for_owner()
    [found] = settings.servers
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


def _policy(policy: SandboxPolicy, wish: SandboxWish) -> SandboxPolicy:
    """Return the policy for calls with made-up values, which may change nothing that is anyone's."""
    asked = msgspec.json.decode(wish.sandbox)
    for key in ("write", "grants"):
        if asked.get(key):
            raise UsageError(
                f'--policy: its "{key}" would let made-up calls change or use what is yours',
                "use {dir} in the command line for a folder that the server may change, --read for one to look at",
            )
    with as_command_error(ValidationError, remedy=POLICY_HELP, what="the policy is wrong: "):
        return harmless(policy, asked.get("network", "none"))


STYLES: Final = {"error": "bold red", "warning": "yellow", "note": "cyan", "passed": "green", "untried": "dim"}

SHOWN: Final = 5
"""Findings of one check that are shown, unless all are wanted."""


def print_report(report: Report, *, in_full: bool) -> None:
    """Print the report; `in_full` also what passed, what was not tried, and every finding."""
    name = f" ({report.name} {report.version})" if report.name else ""
    print_line(f"{report.server}{name}", "bold")
    print_line(f"  {', '.join(_figures(report))}", "dim")
    print_line()
    for severity in Severity:
        for outcome in report.outcomes:
            if outcome.state is State.FOUND and outcome.check.severity is severity:
                _print_finding(outcome, in_full=in_full)
    for outcome in report.outcomes:
        if outcome.state is State.IGNORED:
            print_line(
                f"ignored  {outcome.check.id}: {counted(len(outcome.findings) + outcome.more, 'finding')}", "dim"
            )
    if in_full:
        rest = [
            outcome for state in (State.PASSED, State.UNTRIED) for outcome in report.outcomes if outcome.state is state
        ]
        print_table(
            ("CHECK", "STATE", "EXPECTED"),
            [[Cell(each.check.id), Cell(each.state, STYLES[each.state]), Cell(each.check.claim)] for each in rest],
        )
        print_line()
    if report.observed is not None:
        print_observed(report.observed, in_full=in_full)
        print_line()
    if report.stderr:
        print_line("The end of its stderr:")
        for line in report.stderr.splitlines():
            print_line(f"  {line}", "dim")
        print_line()
    for remark in report.remarks:
        is_untried = not remark.startswith("the sandbox")
        print_paragraph(remark, "dim", lead=Cell("not tried: ", "dim") if is_untried else None)
    counts = {severity: report.count(severity) for severity in Severity}
    passed = sum(outcome.state is State.PASSED for outcome in report.outcomes)
    told = [counted(count, str(severity)) for severity, count in counts.items() if count]
    worst = next((severity for severity, count in counts.items() if count), None)
    print_line(
        f"{', '.join(told) or 'nothing found'}; {counted(passed, 'check')} passed",
        STYLES[worst] if worst is not None else "green",
    )


def _figures(report: Report) -> Iterator[str]:
    measured = report.measured
    yield f"protocol {', '.join(map(printable, report.eras))}" if report.eras else "no protocol"
    if measured.started_s is not None:
        yield f"greeted in {duration(measured.started_s)}"
    if measured.answered_s is not None:
        yield f"answers in {duration(measured.answered_s)}"
    if measured.peak_bytes is not None:
        yield f"memory {size(measured.peak_bytes)}"
    yield f"{counted(measured.tools, 'tool')}, {counted(measured.calls, 'call')}"
    yield f"checked in {duration(measured.took_s)}"


def _print_finding(outcome: Outcome, *, in_full: bool) -> None:
    check = outcome.check
    lead = Cell(f"{check.severity:9}", STYLES[check.severity])
    print_paragraph(f"{check.id}: expected: {check.claim}", "bold", lead=lead)
    shown = outcome.findings if in_full else outcome.findings[:SHOWN]
    for finding in shown:
        told = f"{finding.place}: {finding.problem}" if finding.place else finding.problem
        print_paragraph(told, lead=Cell("         - "))
    if more := len(outcome.findings) - len(shown) + outcome.more:
        print_line(f"         - and {more} more" + ("" if in_full else " (--all shows them)"))
    print_paragraph(check.remedy, "dim", lead=Cell("         fix: ", "dim"))
    print_line()
