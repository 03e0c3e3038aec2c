"""Reword policies and faults that name a row's keys in the options of `quarterdeck run`, which has no row.  Pure."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from quarterdeck_protocol.faults import ProtocolFault

OPTIONS: Final = {
    "read": "--read",
    "write": "--write",
    "hidden": "--hide",
    "grants": "--grant",
    "network": "--network",
    "preset": "--preset",
    "limits": "--limit",
}
"""The option of each policy key that has one."""

_KEY: Final = f'"({"|".join(OPTIONS)})"'
_LIST: Final = re.compile(_KEY + r': \[("[^"]*"(?:, "[^"]*")*)\]')
_LIMIT: Final = re.compile(r'"limits": \{"(\w+)": ([^}]*)\}')
_VALUE: Final = re.compile(_KEY + r': "([^"]*)"')
_FILE_ONLY: Final = re.compile(r'("(?:minimum|require)"(?:: "[^"]*")?)')
_REWORDINGS: Final = (
    (re.compile(r'(--network \S+, or )"internet"'), r"\1--network internet"),
    (re.compile(r'(is not in its )"network"; add "([^"]*)"'), r"\1network; add --network \2"),
    (re.compile(f"(?<!: ){_KEY}"), lambda found: OPTIONS[found[1]]),
    (re.compile(r"the (preset|grant) ['\"](\w[\w-]*)['\"]"), r"--\1 \2"),
    (re.compile(r"\buse a grant\b"), "use --grant"),
    (re.compile(r"\bsay (?=--)"), "use "),
    (re.compile(r",? to its sandbox\b"), ""),
    (
        re.compile(r"(\S+) is not on the server's PATH \(.*\)"),
        r"there is no command \1 on PATH: give its full path",
    ),
)


def in_options(text: str) -> str:
    """Return `text` with each policy key replaced by its option, and values quoted for a shell."""
    text = _LIST.sub(lambda found: _repeat(OPTIONS[found[1]], found[2]), text)
    text = _LIMIT.sub(r"--limit \1=\2", text)
    text = _VALUE.sub(lambda found: f"{OPTIONS[found[1]]} {shlex.quote(found[2])}", text)
    for expression, replacement in _REWORDINGS:
        text = expression.sub(replacement, text)
    return _FILE_ONLY.sub(r"\1 in the file of --policy", text)


def _repeat(option: str, values: str) -> str:
    return " ".join(f"{option} {shlex.quote(value)}" for value in re.findall(r'"([^"]*)"', values))


REMEDIES_OF_RUN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "call_timeout": "ask for less",
        "command_not_found": "install it, or give its full path",
        "config_invalid": "correct the options of quarterdeck run as the message says",
        "crash_loop": "see quarterdeck logs SERVER, then have its client start it again",
        "exited_at_handshake": "see quarterdeck logs SERVER; if it lacks a file: --read PATH or --write PATH before "
        "its --; else run its command by hand",
        "handshake_timeout": "see quarterdeck logs SERVER: is it an MCP server, with the arguments that it needs?",
        "limit_hit": "raise that limit with --limit KEY=VALUE before its --, or ask the server for less",
        "list_timeout": "see quarterdeck logs SERVER",
        "network_failed": "`quarterdeck doctor` says what this machine's sandboxes need for a network; or choose "
        "another: --network MODE before its --",
        "not_connected": "see quarterdeck logs SERVER, then have its client start it again",
        "question_held": "give it a row with 'ask': 'allow' in your configuration, if it may ask that",
        "result_too_large": "ask for less",
        "sandbox_refused": "add the option that the message names before its --: --read PATH, --write PATH, "
        "--network MODE; quarterdeck doctor says what this machine gives",
        "spawn_failed": "run the command by hand; if it works, have its client start it again",
        "unset_variable": "set the variable: --env NAME=VALUE before its --",
    }
)
"""The remedy by fault code for a `run`'s server, where `allow`, `ps`, `restart` or a row cannot help."""


def of_run(fault: ProtocolFault) -> ProtocolFault:
    """Return the fault of a `run`'s server with a message, hints and remedy that name options instead of a row."""
    if fault.reply is not None:
        return fault  # the server's own words stay
    cause, dossier = fault.cause, fault.dossier
    if fault.code == "not_connected" and isinstance(cause, ProtocolFault):
        remedy = of_run(cause).remedy_for(None)
    else:
        remedy = REMEDIES_OF_RUN.get(fault.code or "") or in_options(fault.remedy_for(None) or "")
    said = ProtocolFault(
        fault.kind,
        in_options(fault.message),
        cause,
        code=fault.code,
        delivery=fault.delivery,
        dossier=replace(dossier, hints=tuple(map(in_options, dossier.hints))) if dossier is not None else None,
        remedy=remedy or None,
    )
    said.server = fault.server
    return said
