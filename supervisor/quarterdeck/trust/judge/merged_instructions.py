"""The instructions of all servers as one text for a model: each under its server's name, within a budget.  Pure.

Only what is approved comes here.  All the same it is a stranger's text: it cannot pass for ours, or for another's.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final

BUDGET_CHARS: Final = 8_000
"""Of the whole text: it stands in every conversation, as our own instructions do."""

LEAST_CHARS: Final = 200
"""Of one server's; with less it would say nothing, so that a server with no more room is only named."""

CUT: Final = " […]"

WHOLE: Final = "quarterdeck trust instructions SERVER"
_HEADING: Final = "What each server says of itself, in its own words:"
_SEPARATOR: Final = "\n\n"

_MAX_NAMED: Final = 8
"""Servers that the note on what is cut names one by one."""

_NOTE_CHARS: Final = 800
"""Room for that note: two lists of names of up to 32 characters, and the command."""

_HIDDEN: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
"""Categories of characters that nobody sees, or that end a line unseen."""


def merged(told: Sequence[tuple[str, str]], budget: int = BUDGET_CHARS) -> str:
    """Return the instructions of servers, in configuration order; empty if none has any.

    Short ones stay whole; the others share the rest of the budget equally. What is cut or left out is named, with the
    command that shows it.

    Args:
        told: a server's id and its approved instructions.
        budget: characters of the whole text, at least 1,200.
    """
    parts = {server: f"{_head(server)}{clean}" for server, text in told if (clean := _visible(text))}
    if not parts:
        return ""
    sizes = {server: len(part) + len(_SEPARATOR) for server, part in parts.items()}
    room = budget - len(_HEADING)
    if sum(sizes.values()) <= room:
        return _SEPARATOR.join((_HEADING, *parts.values()))
    room -= _NOTE_CHARS
    least = LEAST_CHARS + max(len(_head(server)) for server in parts) + len(_SEPARATOR)
    shares = _shares(_fitting(sizes, least, room), room)
    shown = {server: _cut(parts[server], share - len(_SEPARATOR)) for server, share in shares.items()}
    cut = [server for server, part in shown.items() if part != parts[server]]
    left_out = [server for server in parts if server not in shown]
    return _SEPARATOR.join((_HEADING, *shown.values(), _note(cut, left_out)))


def _head(server: str) -> str:
    return f"[{server}]\n"


def _fitting(sizes: Mapping[str, int], least: int, room: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for server, size in sizes.items():
        if (needed := min(size, least)) <= room:
            room -= needed
            found[server] = size
    return found


def _shares(sizes: Mapping[str, int], room: int) -> dict[str, int]:
    """Share out `room`, shortest first, each at most an equal part of the rest."""
    shares: dict[str, int] = {}
    for place, server in enumerate(sorted(sizes, key=sizes.__getitem__)):
        shares[server] = min(sizes[server], room // (len(sizes) - place))
        room -= shares[server]
    return {server: shares[server] for server in sizes}


def _cut(text: str, share: int) -> str:
    return text if len(text) <= share else text[: share - len(CUT)].rstrip() + CUT


def _note(cut: Sequence[str], left_out: Sequence[str]) -> str:
    parts = []
    if cut:
        parts.append(f"Cut for their length: the instructions of {_listed(cut)}.")
    if left_out:
        parts.append(f"Not shown for their length: the instructions of {_listed(left_out)}.")
    return " ".join((*parts, f"The user can read them whole: `{WHOLE}`."))


def _listed(servers: Sequence[str]) -> str:
    more = f" and {len(servers) - _MAX_NAMED} more" if len(servers) > _MAX_NAMED else ""
    return ", ".join(servers[:_MAX_NAMED]) + more


def _visible(text: str) -> str:
    """Remove invisible characters, and indent lines that look like our headings."""
    seen = "".join(each for each in text if each == "\n" or unicodedata.category(each) not in _HIDDEN)
    lines = [f" {line}" if line.startswith("[") else line for line in seen.split("\n")]
    return "\n".join(lines).strip("\n").rstrip()
