"""Apply the hunks of a unified diff, strictly: an independent judge of ours."""

import re

_HEADER = re.compile(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@\n")
_NO_NEWLINE = "\\ No newline at end of file\n"


def apply_hunks(text: str, diff: str) -> str:
    r"""`text`, whose lines end in `\n`, as `diff` says it became; every number and line of the diff must be right."""
    old, new = _lines(text), list[str]()
    done = 0
    pending = _lines(diff)
    while pending:
        header = _HEADER.fullmatch(pending.pop(0))
        assert header is not None
        old_first, old_count, new_first, new_count = map(int, header.groups())
        start = old_first - 1 if old_count else old_first
        assert start >= done
        new += old[done:start]
        assert len(new) == (new_first - 1 if new_count else new_first)
        before, after = list[str](), list[str]()
        while pending and not pending[0].startswith("@@"):
            line = pending.pop(0)
            mark, rest = line[0], line[1:]
            if pending and pending[0] == _NO_NEWLINE:
                pending.pop(0)
                rest = rest.removesuffix("\n")
            assert mark in " -+"
            before += [rest] if mark in " -" else []
            after += [rest] if mark in " +" else []
        assert (len(before), len(after)) == (old_count, new_count)
        assert old[start : start + old_count] == before
        new += after
        done = start + old_count
    return "".join(new + old[done:])


def _lines(text: str) -> list[str]:
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])
