"""A change of a file, as people may see it: one hunk of a unified diff, secrets hidden.  Pure."""

import json
from difflib import SequenceMatcher
from typing import Final

from quarterdeck.config.clients.jsonc import parse
from quarterdeck.config.clients.secrecy import mask

CONTEXT: Final = 2
"""Unchanged lines around the change."""

MAX_LINE: Final = 400
"""Where a line is longer the file was not laid out for people, and is shown as if it were."""


def show_change(name: str, old: str, new: str, *, has_comments: bool) -> list[str]:
    """The lines of a diff between two texts of the file `name`; none when they are the same."""
    if old == new:
        return []
    before, after = (_view(text, has_comments=has_comments) for text in (old, new))
    first = 0
    while first < min(len(before), len(after)) and before[first] == after[first]:
        first += 1
    rest = 0
    while rest < min(len(before), len(after)) - first and before[-1 - rest] == after[-1 - rest]:
        rest += 1
    start = max(0, first - CONTEXT)
    shown_before = before[start : min(len(before), len(before) - rest + CONTEXT)]
    shown_after = after[start : min(len(after), len(after) - rest + CONTEXT)]
    return [
        f"--- {name}",
        f"+++ {name}",
        f"@@ -{_extent(start, shown_before)} +{_extent(start, shown_after)} @@",
        *_lines(shown_before, shown_after),
    ]


def _lines(before: list[str], after: list[str]) -> list[str]:
    lines: list[str] = []
    for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            lines += [f" {line}" for line in before[a:b]]
        else:
            lines += [f"-{line}" for line in before[a:b]]
            lines += [f"+{line}" for line in after[c:d]]
    return lines


def _extent(start: int, lines: list[str]) -> str:
    return f"{start + 1 if lines else start},{len(lines)}"


def _view(text: str, *, has_comments: bool) -> list[str]:
    lines = text.splitlines()
    if any(len(line) > MAX_LINE for line in lines):
        text = json.dumps(parse(text, has_comments=has_comments), indent=2, ensure_ascii=False)
    return mask(text).splitlines()
