"""Say in options of `sandbox run` what the sandbox says in keys of a configuration's row.  Pure.

    add "read": ["/a"] to its sandbox     add --read /a
    the preset 'trusted'                  --preset trusted

What has no option (`minimum`, `require`) stands in the file that `--policy` names.
"""

import re
import shlex
from typing import Final

OPTIONS: Final = {
    "read": "--read",
    "write": "--write",
    "hidden": "--hide",
    "grants": "--grant",
    "network": "--network",
    "preset": "--preset",
    "limits": "--limit",
}
"""Of each key of a policy that has one."""

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
)


def in_options(text: str) -> str:
    """`text` with each key of a policy replaced by its option, values quoted for a shell."""
    text = _LIST.sub(lambda found: _repeat(OPTIONS[found[1]], found[2]), text)
    text = _LIMIT.sub(r"--limit \1=\2", text)
    text = _VALUE.sub(lambda found: f"{OPTIONS[found[1]]} {shlex.quote(found[2])}", text)
    for expression, replacement in _REWORDINGS:
        text = expression.sub(replacement, text)
    return _FILE_ONLY.sub(r"\1 in the file of --policy", text)


def _repeat(option: str, values: str) -> str:
    return " ".join(f"{option} {shlex.quote(value)}" for value in re.findall(r'"([^"]*)"', values))
