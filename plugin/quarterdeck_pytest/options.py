"""The options and ini keys of the plugin, and the marker `mcp`, as values. Nothing of the product is imported.

A mistake is a `pytest.UsageError` of one sentence.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import pytest

HEADING: Final = "MCP servers under test (pytest-quarterdeck)"
ERAS: Final = ("2025-11-25", "2026-07-28")  # the revisions of the two eras of MCP; `both` stands for one test in each
NETWORKS: Final = ("none", "internet", "full")
GATES: Final = ("error", "warn", "off")
SCOPES: Final = ("test", "module", "session", "run")
TIMEOUT_S: Final = 60.0  # default for a server's start, and for each call
ARGUMENTS: Final = ("server", "scope", "policy", "env", "era", "timeout")  # of the marker, and of `mcp_server`
CONFIG_NAMES: Final = ("mcp.json", ".mcp.json")  # searched in pytest's root directory without a named configuration

MARKER: Final = (
    'mcp(server=None, *, scope="test", policy=None, env=None, era=None, timeout=None): which MCP server the fixtures '
    'start: an id of the configuration, a command or an object; scope is "test", "module", "session" or "run" (shared '
    "by all xdist workers); policy is a sandbox preset or its keys; env has variables for it; era is a revision or "
    '"both"; timeout is in seconds'
)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line, else of the ini file."""

    config: Path | None = None  # the configuration file; None where none is named and none is found
    network: str = ""  # the servers' network mode; empty for that of their rows
    network_reason: str = ""  # why it is restricted by default; empty if the user chose it
    era: str = ""  # one of `ERAS`, `both`, or empty for 2025-11-25 if the server speaks it
    timeout_s: float = TIMEOUT_S  # of a server's start, and of each call
    keep: bool = False  # whether the servers' state is kept after the run
    leaks: str = "error"  # the consequence of a test's leftovers, of `GATES`


@dataclass(frozen=True, slots=True)
class Mark:
    """The arguments of `@pytest.mark.mcp`; None for those that it lacks."""

    server: Any = None
    scope: str | None = None
    policy: str | Mapping[str, object] | None = None
    env: Mapping[str, str] | None = None
    era: str | None = None
    timeout: float | None = None

    @property
    def said(self) -> "Said":
        """Its arguments, to be read again beneath others."""
        return (), {name: value for name in ARGUMENTS if (value := getattr(self, name)) is not None}

    def checked(self) -> "Mark":
        """Return it unchanged. Raise `pytest.UsageError` for a meaningless value."""
        __tracebackhide__ = True
        if self.scope is not None and self.scope not in SCOPES:
            raise pytest.UsageError(f"mcp: scope={self.scope!r} is none of {', '.join(SCOPES)}")
        if self.era is not None and self.era not in (*ERAS, "both"):
            raise pytest.UsageError(f"mcp: era={self.era!r} is none of {', '.join((*ERAS, 'both'))}")
        for name, value in (self.env or {}).items():
            if not name.isidentifier() or not isinstance(value, str) or "\0" in value:
                raise pytest.UsageError(f"mcp: env: {name!r} is no variable's name, or its value no text")
        if self.timeout is not None and not self.timeout > 0:
            raise pytest.UsageError(f"mcp: timeout={self.timeout!r} is no number of seconds above 0")
        return self


Said = tuple[tuple[Any, ...], Mapping[str, Any]]
"""The arguments of a marker, or of a call."""


def add_options(parser: pytest.Parser) -> None:
    """Declare the options, all under one heading, and their ini keys."""
    group = parser.getgroup("quarterdeck", HEADING)
    group.addoption("--mcp-config", metavar="FILE", help="configuration file that names servers (default: mcp.json)")
    group.addoption(
        "--mcp-network",
        choices=NETWORKS,
        help="what servers reach, unless a test's policy says it (default: what their rows say; none where CI is set)",
    )
    group.addoption(
        "--mcp-era",
        choices=(*ERAS, "both"),
        help="the revision of MCP to speak (default: the legacy one, where spoken)",
    )
    group.addoption(
        "--mcp-timeout", type=float, metavar="S", help="seconds for a server's start, and for each call (default: 60)"
    )
    group.addoption("--mcp-keep", action="store_true", default=None, help="keep the servers' state after the run")
    group.addoption(
        "--mcp-leaks",
        choices=GATES,
        help="what is made of processes, sockets, temporary files and locks that tests leave (default: error)",
    )
    for name in ("config", "network", "era", "timeout", "leaks"):
        parser.addini(f"mcp_{name}", f"default of --mcp-{name}", default="")
    parser.addini("mcp_keep", "default of --mcp-keep", type="bool", default=False)


def check_xdist(unknown: Iterable[str]) -> None:
    """Raise `pytest.UsageError` if one of the unknown arguments is pytest-xdist's."""
    if (wanted := next(filter(_OF_XDIST.match, unknown), None)) is not None:
        raise pytest.UsageError(f"{wanted} needs pytest-xdist, which is not installed or switched off by -p no:xdist")


_OF_XDIST: Final = re.compile(r"(-n\s*(\d+|auto|logical)?|--numprocesses(=.*)?|--dist(=.*)?)$")


def read_options(config: pytest.Config, environ: Mapping[str, str] = os.environ) -> Options:
    """Return the options of this run. Raise `pytest.UsageError` for a meaningless ini key."""
    found = {name: _option(config, name) for name in ("config", "network", "era", "timeout", "leaks")}
    choices = {"network": NETWORKS, "era": (*ERAS, "both"), "leaks": GATES}
    for name, known in choices.items():
        if found[name] and found[name] not in known:
            raise pytest.UsageError(f"mcp_{name} = {found[name]}: it is none of {', '.join(known)}")
    reason = ""
    if not found["network"] and environ.get("CI"):
        found["network"], reason = "none", "CI is set; --mcp-network says otherwise"
    return Options(
        config=_config_file(config),
        network=found["network"],
        network_reason=reason,
        era=found["era"],
        timeout_s=_seconds(found["timeout"]),
        keep=config.getoption("mcp_keep") or bool(config.getini("mcp_keep")),
        leaks=found["leaks"] or "error",
    )


def read_mark(marks: Iterable[Said]) -> Mark:
    """Merge markers, or a marker and a call; the first value of an argument counts.

    Raise `pytest.UsageError` for an unknown argument or a meaningless value.
    """
    __tracebackhide__ = True
    found = Mark()
    for args, kwargs in marks:
        if len(args) > 1:
            raise pytest.UsageError("mcp: only the server may stand without a name, before scope=, policy=, …")
        given = {**({"server": args[0]} if args else {}), **kwargs}
        for name, value in given.items():
            if name not in ARGUMENTS:
                near = get_close_matches(name, ARGUMENTS, 1)
                hint = f": did you mean {near[0]}=?" if near else f": it takes {', '.join(ARGUMENTS)}"
                raise pytest.UsageError(f"mcp: there is no argument {name!r}{hint}")
            if getattr(found, name) is None:
                found = replace(found, **{name: value})
    return found.checked()


def _option(config: pytest.Config, name: str) -> str:
    value = config.getoption(f"mcp_{name}")
    return str(config.getini(f"mcp_{name}") if value is None else value)


def _seconds(text: str) -> float:
    try:
        seconds = float(text) if text else TIMEOUT_S
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise pytest.UsageError(f"mcp_timeout = {text}: it is a number of seconds above 0, and at most 3600")
    return seconds


def _config_file(config: pytest.Config) -> Path | None:
    """Return a named file, relative to the current or the ini file's directory; else the first that is found."""
    if named := config.getoption("mcp_config"):
        return Path(config.invocation_params.dir, named)
    if named := config.getini("mcp_config"):
        return Path(config.inipath.parent if config.inipath is not None else config.rootpath, named)
    return next((path for name in CONFIG_NAMES if (path := config.rootpath / name).exists()), None)
