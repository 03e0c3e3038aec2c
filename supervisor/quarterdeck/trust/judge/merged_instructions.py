"""The instructions of all servers as one text for a model: each under its server's name, within a budget.  Pure.

Only what is approved comes here.  All the same it is a stranger's text: it cannot pass for ours, or for another's.
"""

import unicodedata
from collections.abc import Sequence
from typing import Final

BUDGET_CHARS: Final = 8_000
"""Of all of them: they stand in every conversation, as our own instructions do."""

LEAST_CHARS: Final = 200
"""Of one server's; with less each would say nothing, so that the last ones are only named."""

CUT: Final = " […]"

_HIDDEN: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
"""Categories of characters that nobody sees, or that end a line unseen."""


def merged(told: Sequence[tuple[str, str]], budget: int = BUDGET_CHARS) -> str:
    """The instructions of servers, in configuration order; empty where none has any.

    Short ones are given whole; what is left of the budget is shared by the others alike, each cut at its share.

    Args:
        told: a server's id and its approved instructions.
        budget: characters of all instructions together.
    """
    texts = {server: clean for server, text in told if (clean := _visible(text))}
    shares = _shares({server: len(text) for server, text in texts.items()}, budget)
    shown = {server: share for server, share in shares.items() if share >= min(LEAST_CHARS, len(texts[server]))}
    parts = [f"[{server}]\n{_cut(texts[server], share)}" for server, share in shown.items()]
    if left_out := [server for server in shares if server not in shown]:
        parts.append(f"Not shown for their length: the instructions of {', '.join(left_out)}.")
    return "What each server says of itself, in its own words:\n\n" + "\n\n".join(parts) if parts else ""


def _shares(lengths: dict[str, int], budget: int) -> dict[str, int]:
    """How many characters each may have: the shortest first, each at most an equal part of what is left."""
    shares: dict[str, int] = {}
    left = budget
    for place, server in enumerate(sorted(lengths, key=lengths.__getitem__)):
        shares[server] = min(lengths[server], left // (len(lengths) - place))
        left -= shares[server]
    return {server: shares[server] for server in lengths}


def _cut(text: str, share: int) -> str:
    return text if len(text) <= share else text[: share - len(CUT)].rstrip() + CUT


def _visible(text: str) -> str:
    """A text without what nobody sees, and without lines that look like the heads of ours."""
    seen = "".join(each for each in text if each == "\n" or unicodedata.category(each) not in _HIDDEN)
    lines = [f" {line}" if line.startswith("[") else line for line in seen.split("\n")]
    return "\n".join(lines).strip("\n").rstrip()
