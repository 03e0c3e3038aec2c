"""The options that several commands share, and what those of HTTP, of names and of native tools amount to."""

import os
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from .exits import UsageError, as_command_error
from .log_setup import LogFormat, LogLevel
from .parameters import Argument, Option
from .process import OWN_VARIABLE

if TYPE_CHECKING:
    from quarterdeck.common.http_wish import HttpWish
    from quarterdeck.common.tool_names import NameBudget
    from quarterdeck.config.native_tools import NativeWish
    from quarterdeck.daemon.messages import NativeRequest

OWNER: Final = "owner"
"""Another word for no name of a client."""

Config = Annotated[
    list[Path] | None,
    Option(
        "--config",
        "-c",
        metavar="FILE",
        envvar="QUARTERDECK_CONFIG",
        help="A file that lists servers (mcpServers or servers); may be repeated, the earlier one wins.",
    ),
]


class ProfileName(StrEnum):
    """The sets of native tools, named as on the command line and as in `quarterdeck.deck`."""

    READ_ONLY = "read-only"
    WORKSPACE = "workspace"
    ALL = "all"
    AUTHORING = "authoring"
    SURVEY = "survey"

    @property
    def in_deck(self) -> str:
        """The name in `quarterdeck.deck`, which is not imported for a command's help."""
        return _IN_DECK.get(self, self.value)

    @property
    def shown(self) -> "ProfileName":
        """The name on the command line."""
        return next((name for name, alias in _IN_DECK.items() if alias == self.value), self)


_IN_DECK: Final = {ProfileName.READ_ONLY: "authoring", ProfileName.WORKSPACE: "survey"}

Profile = Annotated[
    ProfileName | None,
    Option(
        "--profile",
        metavar="read-only|workspace|all",
        help="Offer native tools too: read-only changes nothing, workspace also writes files and runs commands, all "
        "adds a note, plans, sub-agents and more.",
    ),
]

Workspace = Annotated[
    Path | None,
    Option(
        "--workspace",
        metavar="DIR",
        help="With --profile: where native tools work; the current directory unless told otherwise.",
    ),
]

AllowDir = Annotated[
    list[Path] | None,
    Option(
        "--allow-dir",
        metavar="DIR",
        help="With --profile: a further directory, or one file, that native tools may change; may be repeated.",
    ),
]

Tools = Annotated[str | None, Option("--tools", metavar="A,B,…", help="With --profile: only these native tools.")]

ServerId = Annotated[str, Argument(metavar="SERVER", help="Its id, as ps shows it.")]

Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]

DryRun = Annotated[bool, Option("--dry-run", help="Show what would be changed, and change nothing.")]

Own = Annotated[
    bool,
    Option("--own", help="Start the servers for this command alone, even when a serve of this configuration runs."),
]

WithoutDaemon = Annotated[
    bool,
    Option(
        "--own",
        envvar=OWN_VARIABLE,
        help="Serve within this process, not by the daemon that all clients of a user share.",
    ),
]

ReadOnly = Annotated[
    bool,
    Option(
        "--read-only",
        help="With --own or --http: only read the ledger, beside the daemon; nothing that is found is recorded.",
    ),
]

NoToken = Annotated[
    bool,
    Option(
        "--no-token",
        help="With --http: require no bearer token; on loopback only, where nothing sandboxed can reach it.",
    ),
]

JsonUrl = Annotated[bool, Option("--json", help="With --http: print the URL as JSON on stdout.")]

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

ServeHttp = Annotated[
    bool, Option("--http", help="Serve streamable HTTP, at HOST:PORT or 127.0.0.1:8808, in place of stdio.")
]

ListenHttp = Annotated[
    bool, Option("--http", help="Listen on HTTP, too, at HOST:PORT or 127.0.0.1:8808, for every deck.")
]

HttpAddress = Annotated[
    str | None, Argument(metavar="HOST:PORT", help="With --http: where; port 0 lets the system choose.")
]

Metrics = Annotated[
    str | None,
    Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Serve metrics for Prometheus there, on loopback, without a token; the usual port is 9464.",
    ),
]

AllowRemote = Annotated[bool, Option("--allow-remote", help="With --http: HOST may be reachable from other machines.")]

AllowHost = Annotated[
    list[str] | None,
    Option("--allow-host", metavar="NAME", help="With --http: also accept this Host header; may be repeated."),
]


def http_wish(
    http: bool, address: str | None, allow_remote: bool, allow_host: list[str] | None, **others: bool
) -> "HttpWish | None":
    """Return where to listen, None without `--http`.

    Raise CommandError if the address is wrong, or if one of these options or `others` needs `--http`.
    """
    if not http:
        given = {"HOST:PORT": address, "--allow-remote": allow_remote, "--allow-host": allow_host, **others}
        if lonely := [name for name, value in given.items() if value]:
            raise UsageError(f"{lonely[0]} needs --http", "add --http, or leave it out")
        return None
    from quarterdeck.common.http_wish import HttpWish
    from quarterdeck.host.http.options import split_address

    wish = HttpWish(address or "", allow_remote, tuple(allow_host or ()))
    with as_command_error(ValueError, remedy="for example 127.0.0.1:8808, or [::1]:8808"):
        split_address(wish.address)
    return wish


def check_inherited(names: Iterable[str]) -> None:
    """Raise CommandError if a variable that a command is to inherit is not set."""
    if unset := [name for name in names if name not in os.environ]:
        raise UsageError(f"--env {unset[0]}: there is no such variable", f"set it: --env {unset[0]}=VALUE")


def check_search(*, is_wanted: bool) -> None:
    """Raise CommandError if tools cannot be searched here, though it `is_wanted`."""
    if not is_wanted:
        return
    from quarterdeck.host.search.index import missing_reason

    if why := missing_reason():
        raise UsageError(f"--search cannot rank tools: {why}", "use a Python whose SQLite has FTS5, or --group NAME")


NO_BUDGET: Final = 0
"""Given to leave names as they are: some clients, and programs of one's own, take any."""

Group = Annotated[
    list[str] | None,
    Option("--group", metavar="NAME", help="Only what this group of the configuration has; may be repeated."),
]

OneClient = Annotated[
    str | None,
    Option("--client", metavar="NAME", help="Of this client, as its token is called; without it the owner's."),
]

Search = Annotated[bool, Option("--search", help="Show clients search_tools and call_tool in place of all tools.")]

Budget = Annotated[
    int | None,
    Option(
        "--name-budget",
        metavar="N",
        help="Show tools under names of at most N characters; 0 leaves them as they are. Without it 46, which every "
        "known client takes.",
    ),
]

Prefix = Annotated[
    str | None,
    Option(
        "--client-prefix",
        metavar="PREFIX",
        help="What the client puts before a tool's name, for example mcp__deck__: names keep to the 64 characters "
        "less these.",
    ),
]


def client_name(name: str | None) -> str:
    """Return a client's name, empty for the owner; raise CommandError if no token could be called so."""
    if name is None or name == OWNER:
        return ""
    from quarterdeck.host.http.grants import check_name

    with as_command_error(ValueError, remedy="name a client as its token is called: quarterdeck token list"):
        return check_name(name)


def name_budget(limit: int | None, prefix: str | None) -> "NameBudget | None":
    """Return the budget for tool names, None to leave names unchanged.

    Raise CommandError if both are given, or if too little is left for a name.
    """
    from quarterdeck.common.tool_names import MAX_NAME_CHARS, MIN_LIMIT, NameBudget

    if limit is not None and prefix is not None:
        raise UsageError(
            "--name-budget and --client-prefix set the same thing in two ways",
            f"give one of them; behind {prefix!r} {MAX_NAME_CHARS - len(prefix)} characters are left",
        )
    if limit == NO_BUDGET:
        return None
    try:
        if prefix is not None:
            return NameBudget.behind(prefix)
        return NameBudget() if limit is None else NameBudget(limit)
    except ValueError as error:
        if prefix is None:
            raise UsageError(f"--name-budget: {error}", "or give 0, to leave names as they are") from None
        raise UsageError(
            f"--client-prefix: of {MAX_NAME_CHARS} characters {len(prefix)} are its own: {error}",
            f"give our entry in the client's configuration a shorter name, {MAX_NAME_CHARS - MIN_LIMIT} characters "
            "with all that the client adds",
        ) from None


def native_wish(asked: "NativeRequest") -> "NativeWish":
    """Return these native tools for `Settings`, or raise CommandError if there is no such tool."""
    from quarterdeck.common.tool_names import Profile
    from quarterdeck.config.native_tools import NativeWish

    profile = Profile(asked.profile)
    if asked.tools is not None:
        from quarterdeck.tools.card_types import DeckFault
        from quarterdeck.tools.catalogue import check_tools

        try:
            check_tools(profile, asked.tools)
        except DeckFault as fault:
            shown = ProfileName(profile).shown
            remedy = f"quarterdeck tools --profile {shown} lists them"
            raise UsageError(f"--tools: {fault.message}", remedy) from None
    directories = tuple(map(Path, asked.allow_dirs))
    return NativeWish(profile=profile, workspace=Path(asked.workspace), allow_dirs=directories, tools=asked.tools)


def native_options(
    profile: ProfileName | None, workspace: Path | None, allow_dirs: list[Path] | None, tools: str | None
) -> "NativeRequest | None":
    """Return the native tools of these options, None without a profile; directories are real, tools may be unknown.

    Raise CommandError if they need a profile, or name a missing directory or no tool.
    """
    if profile is None:
        given = {"--workspace": workspace, "--allow-dir": allow_dirs, "--tools": tools}
        if lonely := [name for name, value in given.items() if value]:
            raise UsageError(
                f"{lonely[0]} needs --profile, which chooses the native tools",
                "add --profile read-only, workspace or all; or leave it out",
            )
        return None
    names = tuple(dict.fromkeys(name for part in (tools or "").split(",") if (name := part.strip())))
    if tools is not None and not names:
        raise UsageError("--tools lists no tools", "for example --tools read,grep,bash")
    from quarterdeck.daemon.messages import NativeRequest

    return NativeRequest(
        profile.in_deck,
        _directory("--workspace", workspace or Path()),
        tuple(dict.fromkeys(_directory("--allow-dir", path, or_file=True) for path in allow_dirs or ())),
        names or None,
    )


def _directory(option: str, path: Path, *, or_file: bool = False) -> str:
    try:
        real = path.expanduser().resolve(strict=True)
        is_directory = real.is_dir() or (or_file and real.is_file())
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(
            f"{option} {path}: {reason}", f"name a directory that exists, and that you may enter: {option} DIR"
        ) from None
    if not is_directory:
        raise UsageError(f"{option} {path}: is not a directory", f"name a directory: {option} DIR")
    return str(real)
