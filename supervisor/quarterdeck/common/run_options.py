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

_SETTING: Final = re.compile(
    rf'"(?P<key>{"|".join(OPTIONS)}|minimum|require)"'
    r'(?:: (?:\{"(?P<limit>\w+)": (?P<most>[^}]*)\}|(?P<values>"[^"]*"|\["[^"]*"(?:, "[^"]*")*\])))?'
)
"""A policy's key as the sandbox's messages name it, alone or with its value."""


def in_options(text: str) -> str:
    """Return `text` with each policy key replaced by its option, and values quoted for a shell."""
    return _SETTING.sub(_as_option, text).replace(" to its sandbox", "")


def _as_option(found: re.Match[str]) -> str:
    option = OPTIONS.get(found["key"])
    if option is None:
        return f"{found[0]} in the file of --policy"
    if found["limit"]:
        return f"{option} {found['limit']}={found['most']}"
    values = re.findall(r'"([^"]*)"', found["values"] or "")
    return " ".join(f"{option} {shlex.quote(value)}" for value in values) or option


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
        "seal_changed": "quarterdeck seals verify says which file differs; quarterdeck seals remove has it "
        "installed again",
        "seal_failed": "do what the message says, then have its client start it again",
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
