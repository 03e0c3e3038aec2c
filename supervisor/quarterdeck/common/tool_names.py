"""Names of native tools, and the names by which clients see any tool. Pure.

Clients allow fewer characters than a qualified name may have. A name that fits the budget is unchanged. Any other has
an alias, `<server>__<tool, cut>_<digest>`, that depends only on the qualified name and the budget, so that a client
finds the same tool under it tomorrow, whatever else is offered.
"""

import base64
import functools
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Self

import msgspec

from quarterdeck_protocol.names import QUALIFIER

NATIVE_NAMES: Final = frozenset(
    {
        *("read", "ls", "grep", "find", "websearch", "webfetch", "todo_read"),
        *("write", "edit", "bash", "process", "todo_set"),
        *("todo", "bg-process", "task", "saas-action", "memory", "enter_plan_mode", "exit_plan_mode"),
    }
)
"""Reserved for them: what a server offers may not look like one."""

MAX_NAME_CHARS: Final = 64
"""The models' limit: OpenAI and Bedrock `[a-zA-Z0-9_-]{1,64}`; Gemini 64, the first a letter or `_`; Anthropic 128, but
64 where a result refers to a tool (anthropics/claude-code#16425).
"""

CLIENT_PREFIXES: Final[Mapping[str, str]] = MappingProxyType(
    {
        # anthropics/claude-code#23149 and its documentation: mcp__<entry>__<tool>; only a plugin's is longer.
        "Claude Code": "mcp__quarterdeck__",
        # openai/codex, codex-rs/codex-mcp/src/tools.rs: a namespace mcp__<entry>, then MCP_TOOL_NAME_DELIMITER.
        "Codex": "mcp__quarterdeck__",
        # microsoft/vscode, mcpTypes.ts, McpToolName: mcp_, 18 characters at most; a second server of one name has a
        # number (microsoft/vscode#324992).
        "VS Code": "mcp_quarterdeck_2_",
        # PostHog/posthog#51483: entry and tool together stay under 60, which is mcp_<entry>_<tool> within 64.
        "Cursor": "mcp_quarterdeck_",
        # google-gemini/gemini-cli#21664: mcp_<entry>_<tool>, always.
        "Gemini CLI": "mcp_quarterdeck_",
        # microsoft/mcp#842: <entry>-<tool>.
        "Copilot CLI": "quarterdeck-",
    }
)
"""Prefixes that known clients put before tool names when their entry for us is called `quarterdeck`, as by `link`."""

DEFAULT_LIMIT: Final = MAX_NAME_CHARS - max(map(len, CLIENT_PREFIXES.values()))
"""46: fits behind every known client's prefix, and keeps every server id whole (32 characters, and one for a digit)."""

MIN_LIMIT: Final = 24
"""The longest digest (16) with its `_`, the `__`, and five characters of server and tool; every native name fits."""

_DIGEST_CHARS: Final = (8, 12, 16)
"""Base32 characters of a digest, 5 bits each: 8 are enough for all but a name that is already taken."""

_MIN_TOOL_CHARS: Final = 3
"""So much of a tool's own name is kept even where the server's id has to be cut for it."""

_FITTING: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
"""What all of them accept.  MCP's dot is refused by OpenAI and Anthropic (github/copilot-cli#1879), a digit or `-` at
the beginning by Gemini (`FunctionDeclaration.name`)."""

_UNFIT_CHAR: Final = re.compile(r"[^A-Za-z0-9_-]")
_ALIAS_END: Final = re.compile(r"_[a-z2-7]{8,16}\Z")

_KNOWN: Final = 20_000
"""Aliases kept, some MB at most: each change of any tool asks for all of them again, and a server may list 5,000."""


class Profile(StrEnum):
    """A named set of capabilities. The names are inverted on purpose, and stay so: `authoring` only observes."""

    AUTHORING = "authoring"
    """The read-only built-ins."""

    SURVEY = "survey"
    """Every built-in, mutating ones included."""

    ALL = "all"
    """Every built-in and every app card."""


class NameBudget(msgspec.Struct, frozen=True):
    """The most characters of a tool's name before clients. Raises ValueError below `MIN_LIMIT` characters."""

    limit: int = DEFAULT_LIMIT

    def __post_init__(self) -> None:
        if self.limit < MIN_LIMIT:
            raise ValueError(f"{self.limit} characters are too few to tell tools apart: {MIN_LIMIT} are needed")

    @classmethod
    def behind(cls, prefix: str) -> Self:
        """Return the budget that a client's `prefix` before every name leaves. Raise ValueError below `MIN_LIMIT`."""
        return cls(MAX_NAME_CHARS - len(prefix))

    def fits(self, name: str) -> bool:
        """Whether clients can be shown `name` as it is."""
        return len(name) <= self.limit and _FITTING.fullmatch(name) is not None


def public_names(qualified: Iterable[str], budget: NameBudget) -> dict[str, str]:
    """Return each tool's name before clients: every name fits, and no two are equal.

    Other tools matter only if an alias equals another tool's own name, or another's alias. Then it gets a longer digest
    (of two aliases both do), so that no tool ever has a name that another one would get. No alias is a native tool's
    name: each has a `__`.
    """
    names = dict.fromkeys(qualified, "")
    waiting = []
    for name in names:
        if budget.fits(name):
            names[name] = name
        else:
            waiting.append(name)
    taken = {name for name in names if names[name]} if waiting else set()
    for attempt in itertools.count():
        if not waiting:
            break
        wanted = {name: _alias(name, budget.limit, attempt) for name in waiting}
        wishes = Counter(wanted.values())
        granted = {name: alias for name, alias in wanted.items() if wishes[alias] == 1 and alias not in taken}
        names.update(granted)
        taken.update(granted.values())
        waiting = [name for name in waiting if name not in granted]
    return names


def may_be_alias(name: str) -> bool:
    """Whether `name` ends as aliases do; some tools' own names do, too."""
    return _ALIAS_END.search(name, max(0, len(name) - 17)) is not None and QUALIFIER in name


@functools.lru_cache(_KNOWN)
def _alias(name: str, limit: int, attempt: int) -> str:
    digest = _digest(name, attempt)
    server, _, tool = (_UNFIT_CHAR.sub("_", part[:limit]) for part in name.partition(QUALIFIER))
    if not _FITTING.match(server):
        server = f"_{server}"
    room = limit - len(QUALIFIER) - len("_") - len(digest)
    server = server[: room - min(len(tool), _MIN_TOOL_CHARS)].rstrip("_") or "_"
    return f"{server}{QUALIFIER}{tool[: room - len(server)].rstrip('_-')}_{digest}"


def _digest(name: str, attempt: int) -> str:
    chars = _DIGEST_CHARS[min(attempt, len(_DIGEST_CHARS) - 1)]
    enough = _DIGEST_CHARS[-1] * 5 // 8
    # Lone surrogates are hashed as they are: what is no text has an alias, too.
    content = f"{attempt}:{name}".encode("utf-8", "surrogatepass")
    return base64.b32encode(hashlib.sha256(content).digest()[:enough])[:chars].decode().lower()
