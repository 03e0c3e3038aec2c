"""The table of commands, and help: the commands in their panels; of one command its arguments, options and examples.

A table, so that `--help` imports no command, and a command no other; a command's own help is made from its click
parameters, common options last.
"""

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from .exits import MEANINGS
from .output import WIDEST, shows_styles

if TYPE_CHECKING:
    from click import Command, Parameter

PROGRAM: Final = "quarterdeck"


class Entry(msgspec.Struct, frozen=True):
    """One command of the first level, or a group of them.

    Attributes:
        home: `module:attribute` below `quarterdeck.cli`: a function, or a `Group`.
        panel: heading under which the help lists it.
        verbatim: whether its options end at its first argument, as the rest is another program's.
    """

    name: str
    home: str
    panel: str
    summary: str
    verbatim: bool = False


RUN: Final = "Run"
TRUST: Final = "Trust"
CONFIGURE: Final = "Configure"
DIAGNOSE: Final = "Diagnose"

PANELS: Final = (RUN, TRUST, CONFIGURE, DIAGNOSE)
"""In the order of the help."""

ENTRIES: Final = (
    Entry("serve", "run.serve:serve", RUN, "Publish every server's tools, and native ones, as one MCP server"),
    Entry("run", "run.serve:run", RUN, "Serve one server by its command line, isolated, on stdio", verbatim=True),
    Entry("up", "run.daemon_commands:up", RUN, "Start the daemon that all clients share, and have it stay"),
    Entry("down", "run.daemon_commands:down", RUN, "End the daemon"),
    Entry("status", "run.daemon_commands:status", RUN, "Show the daemon: who is connected, and what runs"),
    Entry("ui", "run.ui:ui", RUN, "Open a page with what runs, what waits for approval, calls and the ledger"),
    Entry("top", "run.ui:top", RUN, "Show what runs and what waits for approval in the terminal"),
    Entry("service", "run.service:group", RUN, "Have the system run the daemon from each login on"),
    Entry("tools", "run.tools:tools", RUN, "List the tools that can be called"),
    Entry("call", "run.tools:call", RUN, "Call one tool and print what it answers"),
    Entry("ps", "run.servers:ps", RUN, "Show every server that runs"),
    Entry("inspect", "run.servers:inspect", RUN, "Show one server in detail: its policy, and how much is enforced"),
    Entry("logs", "diagnose.logs:logs", RUN, "Show what a server wrote on its standard error"),
    Entry("restart", "run.servers:restart", RUN, "Restart one server"),
    Entry("wake", "run.servers:wake", RUN, "Start a server that sleeps"),
    Entry("sleep", "run.servers:sleep", RUN, "Stop a server until it is called"),
    Entry("trust", "trust.trust:group", TRUST, "Decide what servers may offer: list, diff, approve, block, scan"),
    Entry("lock", "trust.lock:lock", TRUST, "Write the approved hashes to deck.lock, or compare the servers with it"),
    Entry("ledger", "trust.ledger:group", TRUST, "Read the record of what was offered, approved and called"),
    Entry("quarantine", "trust.quarantine:group", TRUST, "Show and restore files that servers made for others to run"),
    Entry("search", "find.search:search", CONFIGURE, "Look for servers in the MCP registry"),
    Entry("add", "find.add:add", CONFIGURE, "Add a server: tried in a sandbox, shown, pinned, approved"),
    Entry("remove", "find.remove:remove", CONFIGURE, "Take a server out of your configuration"),
    Entry("outdated", "find.outdated:outdated", CONFIGURE, "Show the servers whose package has a newer version"),
    Entry("upgrade", "find.upgrade:upgrade", CONFIGURE, "Try another version of a server, and show what changes"),
    Entry("seals", "find.seals:group", CONFIGURE, "Show the packages that servers start from: verify, remove them"),
    Entry("config", "configure.config:group", CONFIGURE, "Find configuration, and its mistakes; import other clients'"),
    Entry("link", "configure.clients:link", CONFIGURE, "Put quarterdeck into a client's configuration"),
    Entry("unlink", "configure.clients:unlink", CONFIGURE, "Take quarterdeck out of a client's configuration"),
    Entry("login", "configure.login:login", CONFIGURE, "Log in at a remote server"),
    Entry("logout", "configure.login:logout", CONFIGURE, "Forget the login at a remote server"),
    Entry("secret", "configure.secret:group", CONFIGURE, "Store the secrets that ${keyring:NAME} refers to"),
    Entry("token", "configure.secret:token_group", CONFIGURE, "Show, create and revoke bearer tokens of serve --http"),
    Entry("purge", "configure.purge:purge", CONFIGURE, "Show what is kept on disk, and remove it"),
    Entry("check", "diagnose.check:check", DIAGNOSE, "Try a server: every tool, odd requests, effects", verbatim=True),
    Entry("doctor", "diagnose.doctor:doctor", DIAGNOSE, "Find out what this machine can enforce, by trying it"),
    Entry("why", "trust.why:why", DIAGNOSE, "Tell one call's whole story: who, what was approved, server, time, end"),
    Entry("explain", "diagnose.explain:explain", DIAGNOSE, "Explain an error's code: cause, remedy, example"),
    Entry("allow", "configure.allow:allow", TRUST, "Give servers' sandboxes what their rows ask for"),
    Entry("suggest", "configure.suggest:suggest", TRUST, "Propose what a server's sandbox lacked in its calls"),
    Entry("sandbox", "run.sandbox:group", DIAGNOSE, "Try a sandbox policy on any command"),
    Entry("checkpoint", "run.checkpoint:group", DIAGNOSE, "Undo what write and edit of a session changed"),
    Entry("demo", "diagnose.demo:demo", DIAGNOSE, "See what happens when servers hang and crash"),
    Entry(
        "completion", "configure.completion:completion", CONFIGURE, "Print the script that completes words in a shell"
    ),
)

BY_NAME: Final = {entry.name: entry for entry in ENTRIES}

OTHER_WORDS: Final = {
    "approve": "`quarterdeck trust approve NAME` approves what a server offers",
    "import": "`quarterdeck config import CLIENT` takes over the servers of another client",
    "install": "`quarterdeck add NAME` adds a server, `quarterdeck link CLIENT` has a client use quarterdeck",
    "list": "`quarterdeck tools` lists the tools, `quarterdeck ps` the servers, `quarterdeck trust list` what is held",
    "start": "`quarterdeck up` starts the daemon, `quarterdeck restart SERVER` starts one server again",
    "stop": "`quarterdeck down` ends the daemon, `quarterdeck remove SERVER` removes a server",
    "uninstall": "`quarterdeck remove SERVER` removes a server, `quarterdeck unlink CLIENT` takes us out of a client",
    "update": "`quarterdeck outdated` shows what has a newer version, `quarterdeck upgrade SERVER` tries it",
}
"""Command names of other tools, each with the fix that names our command; they run nothing."""

PURPOSE: Final = "Run MCP servers that you do not trust, each in its own isolated worker, published as one MCP server."

NATIVE_OPTIONS: Final = frozenset({"--profile", "--workspace", "--allow-dir", "--tools"})
"""Options of the commands that offer native tools."""

COMMON_OPTIONS: Final = ("--config", "--own", "--allow-unsandboxed", "--json", "--log-level", "--log-format")
"""They mean the same in every command that has them; in the order of the help."""

STATE_DIR_HELP: Final = ("      --state-dir DIR", "Where ledger, homes and logs are kept.")

FIRST_EXAMPLES: Final = (
    ("quarterdeck demo", "see it work"),
    ("quarterdeck tools -c mcp.json", "what the servers of a file offer"),
    ("quarterdeck serve -c mcp.json", "one MCP server over all of them"),
)

LEFT_COLUMNS: Final = 30
"""The widest left column; a longer name has a line of its own."""

Row = tuple[str, str]


def examples_of(path: str) -> list[Row]:
    """Return the examples of a command, such as `config show`, or of a group: command lines with explanations."""
    from importlib import resources  # which loads much that only this needs

    lines = resources.files(__package__).joinpath("examples.txt").read_text("utf-8").splitlines()
    own = re.compile(rf"\b{PROGRAM} {path}\b")
    return [(line, what) for line, separator, what in (each.partition("  # ") for each in lines) if own.search(line)]


def print_program_help() -> None:
    """Print the help of the first level."""
    lines = [*_usage("COMMAND [OPTIONS]"), "", *textwrap.wrap(PURPOSE, _width()), ""]
    width = max(len(entry.name) for entry in ENTRIES)
    for panel in PANELS:
        rows = [(f"  {entry.name:<{width}}", entry.summary) for entry in ENTRIES if entry.panel == panel]
        lines += [*_section(panel, rows), ""]
    rows = [
        ("  --state-dir DIR", STATE_DIR_HELP[1]),
        ("  --version", "Print the version."),
        ("  -h, --help", "Show this; after a command's name, its own."),
    ]
    lines += [*_section("Options", rows), "", *_section("Examples", _examples(FIRST_EXAMPLES))]
    lines += ["", "quarterdeck help COMMAND explains one; quarterdeck help exit-codes lists the exit codes."]
    _write(lines)


def print_exit_codes() -> None:
    """Print `help exit-codes`."""
    codes = [(f"  {int(code):3d}", meaning) for code, meaning in MEANINGS.items()]
    of_sandbox = ("the sandbox was refused", "the command may not be executed", "there is no such command")
    _write(
        [
            *("Exit codes:", "", *_aligned(codes, 7)),
            *("", "sandbox run ends with the status of its command, or with", ""),
            *_aligned([(f"  {code}", meaning) for code, meaning in enumerate(of_sandbox, 125)], 7),
        ]
    )


def describe_command(command: "Command", path: str, usage: str) -> str:
    """Return the help of a command or group; `path` includes its group's name, `usage` follows it."""
    lines = [*_usage(f"{path} {usage}".strip()), ""]
    for paragraph in (command.help or "").split("\n\n"):
        lines += [*textwrap.wrap(" ".join(paragraph.split()), _width()), ""]
    own: list[Row] = []
    native: list[Row] = []
    common: list[Row] = []
    arguments: list[Row] = []
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        row = (f"  {_spelling(parameter)}", _explanation(parameter))
        if parameter.param_type_name == "argument":
            arguments.append(row)
        else:
            names = set(parameter.opts)
            (native if names & NATIVE_OPTIONS else common if names & {*COMMON_OPTIONS} else own).append(row)
    common.sort(key=lambda row: next(at for at, name in enumerate(COMMON_OPTIONS) if f"{name} " in f"{row[0]} "))
    common += [STATE_DIR_HELP, ("  -h, --help", "Show this.")]
    commands = getattr(command, "commands", {})
    rows = [(f"  {name}", " ".join((each.help or "").split("\n\n")[0].split())) for name, each in commands.items()]
    for title, section in (
        ("Commands", rows),
        ("Arguments", arguments),
        ("Options", own),
        ("Native tools", native),
        ("Common options", common),
        ("Examples", _examples(examples_of(path))),
    ):
        if section:
            lines += [*_section(title, section), ""]
    return "\n".join(lines).rstrip() + "\n"


def _spelling(parameter: "Parameter") -> str:
    if parameter.param_type_name == "argument":
        return str(getattr(parameter, "metavar", None) or (parameter.name or "").upper())
    options = sorted(parameter.opts, key=len)
    short = [option for option in options if not option.startswith("--")]
    spelt = ", ".join(options) if short else "    " + ", ".join(options)
    return (
        spelt if getattr(parameter, "is_flag", False) else f"{spelt} {getattr(parameter, 'metavar', None) or 'VALUE'}"
    )


def _explanation(parameter: "Parameter") -> str:
    text = getattr(parameter, "help", None) or ""
    default = None if parameter.required else getattr(parameter.default, "value", parameter.default)
    shown = getattr(parameter, "show_default", False)
    if isinstance(shown, str):
        text += f" (by default {shown})"
    elif shown and default is not None and not callable(default) and default not in (False, (), [], ""):
        text += f" (by default {default})"
    variable = getattr(parameter, "envvar", None)
    return f"{text} (also by {variable})" if isinstance(variable, str) else text


def _examples(examples: Iterable[tuple[str, str]]) -> list[Row]:
    return [(f"  {line}", f"# {what}") for line, what in examples]


def _usage(rest: str) -> list[str]:
    return [f"{_bold('Usage:')} {PROGRAM} {rest}"]


def _section(title: str, rows: Sequence[Row]) -> list[str]:
    longest = max(len(left) for left, _ in rows)
    most = LEFT_COLUMNS if title != "Examples" else _width() // 2
    return [_bold(title), *_aligned(rows, min(longest, most) + 2)]


def _aligned(rows: Sequence[Row], left_columns: int) -> list[str]:
    """Return two columns; an explanation is wrapped within its own."""
    lines: list[str] = []
    room = max(30, _width() - left_columns)
    for left, right in rows:
        wrapped = textwrap.wrap(right, room, break_long_words=False, break_on_hyphens=False) or [""]
        if len(left) + 2 > left_columns:
            lines.append(left)
        else:
            lines.append(f"{left:{left_columns}}{wrapped.pop(0)}".rstrip())
        lines += [" " * left_columns + line for line in wrapped]
    return lines


def _bold(title: str) -> str:
    if not shows_styles(sys.stdout):
        return title
    from click import style  # the help of a command has it anyway, where rich would be half of the wait

    return style(title, bold=True)


def _width() -> int:
    return max(40, min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST))


def _write(lines: Iterable[str]) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
