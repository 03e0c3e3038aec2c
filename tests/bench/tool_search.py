"""What groups and `--search` spare a model, and whether what is looked for is found, over the tools of public servers.

    python tests/bench/tool_search.py

Nothing is started: the definitions are those that tests/collect_tools.py took from the servers.  The questions are in
tool_questions.tsv.  Tokens are what `quarterdeck tools --tokens` says.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.servers.real_tools import read_servers

from quarterdeck.common.tokens import TOKENIZER, estimated_tokens, tokens_of_tool
from quarterdeck.config.groups import Group
from quarterdeck.host.offers.content import Content
from quarterdeck.host.offers.groups import LiveGroups
from quarterdeck.host.offers.publish import Catalog
from quarterdeck.host.search.tool_search import DEFAULT_LIMIT, MAX_LIMIT
from quarterdeck.host.search.words import words_of_question
from quarterdeck_protocol.tools import ANONYMOUS, Client, ToolDescriptor, as_source

QUESTIONS: Final = Path(__file__).with_name("tool_questions.tsv")

DECK: Final = (
    *(
        "brave-search",
        "desktop-commander",
        "everything",
        "excel",
        "fetch",
        "filesystem",
        "git",
        "github",
        "google-maps",
    ),
    *("memory", "notion", "playwright", "postgres", "sentry", "sequential-thinking", "slack", "time"),
)
"""The servers of which the questions are."""

GROUPS: Final = {
    "review": Group(
        servers=("git",),
        tools=("github__get_*", "github__list_*", "github__*pull_request*", "filesystem__read_*"),
        hide=("github__merge_*",),
    ),
    "research": Group(servers=("brave-search", "fetch", "memory", "sequential-thinking", "time")),
    "web": Group(servers=("playwright", "fetch")),
    "office": Group(servers=("excel", "slack", "time"), tools=("notion__*search*", "notion__*page*")),
    "looking": Group(tools=("*__get_*", "*__list_*", "*__read_*", "*__search_*")),
}
"""As somebody with all of `DECK` would write them."""

VERSION: Final = "2025-11-25"

SEARCHED: Final = Client(is_searched=True)


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the tools of which any answers it."""

    text: str
    right: frozenset[str]


@dataclass(frozen=True, slots=True)
class Measured:
    """What one deck was found to be.

    Attributes:
        before: tokens of all its definitions, as models are given them.
        after: of the two tools in their place.
        answer: of an answer to a question, at the default limit, on average.
        first: questions that were answered with a right tool first; `fifth` among five, `twentieth` among twenty.
        missed: those that are not among the first five.
    """

    servers: int
    tools: int
    before: int
    after: int
    answer: int
    first: int
    fifth: int
    twentieth: int
    missed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MeasuredGroup:
    """What a group shows of a deck: `tokens` as a list, `searched` with `--search`."""

    name: str
    tools: int
    tokens: int
    searched: int


class _Box:
    """Tools that nobody calls."""

    def __init__(self, tools: Sequence[ToolDescriptor]) -> None:
        self._tools = tools

    def descriptors(self) -> Sequence[ToolDescriptor]:
        return self._tools

    @property
    def runner(self) -> "_Box":
        return self

    async def run(self, *_: object) -> None:
        raise NotImplementedError


def questions() -> list[Question]:
    lines = [line for line in QUESTIONS.read_text("utf-8").splitlines() if not line.startswith("#")]
    pairs = [line.split("\t") for line in lines]
    return [Question(text, frozenset(right.split())) for text, right in pairs]


def tools_of(servers: Sequence[str] | None = None) -> tuple[ToolDescriptor, ...]:
    """The tools of these servers, by default of all that are written down, as a deck has them."""
    return tuple(
        ToolDescriptor(f"{server.name}__{tool['name']}", tool.get("description") or "", {}, json.dumps(tool).encode())
        for server in read_servers()
        if servers is None or server.name in servers
        for tool in server.tools
    )


async def measure(tools: tuple[ToolDescriptor, ...]) -> Measured:
    box = as_source(_Box(tools))
    content = Content(box=box, name="bench", version="0")
    asked, size = questions(), 0
    answered: dict[int, list[Question]] = {1: [], DEFAULT_LIMIT: [], MAX_LIMIT: []}
    for question in asked:
        for limit, right in answered.items():
            wanted = json.dumps({"query": question.text, "limit": limit}).encode()
            answer = await content.search.answer(wanted, box, ANONYMOUS, VERSION)
            assert isinstance(answer, str)
            size += estimated_tokens(answer) if limit == DEFAULT_LIMIT else 0
            if any(tool["name"] in question.right for tool in json.loads(answer)["tools"]):
                right.append(question)
    return Measured(
        servers=len({tool.name.partition("__")[0] for tool in tools}),
        tools=len(tools),
        before=_cost(tools),
        after=_cost(content.tools_for(SEARCHED).descriptors()),
        answer=round(size / len(asked)),
        first=len(answered[1]),
        fifth=len(answered[DEFAULT_LIMIT]),
        twentieth=len(answered[MAX_LIMIT]),
        missed=tuple(each.text for each in asked if each not in answered[DEFAULT_LIMIT]),
    )


def measure_groups(tools: tuple[ToolDescriptor, ...]) -> list[MeasuredGroup]:
    groups = LiveGroups(GROUPS)
    content = Content(box=as_source(_Box(tools)), name="bench", version="0", groups=groups)
    found = []
    for name in GROUPS:
        shown = content.tools_for(groups.narrow(ANONYMOUS, (name,))).descriptors()
        searched = content.tools_for(groups.narrow(SEARCHED, (name,))).descriptors()
        found.append(MeasuredGroup(name, len(shown), _cost(shown), _cost(searched)))
    return found


def stuffed(place: str) -> tuple[ToolDescriptor, ...]:
    """A server whose tools are made to be found by every question: the questions' words, the commonest first."""
    counted = Counter(word for question in questions() for word in words_of_question(question.text))
    words = [word for word, _ in counted.most_common()]
    tools = []
    for number in range(20):
        own = f"tool_{number}" if place != "name" else "_".join((*words[:200], str(number)))
        said = " ".join(words)
        tool = {"name": own, "inputSchema": {"type": "object"}, place: own if place == "name" else said}
        described = said if place == "description" else ""
        tools.append(ToolDescriptor(f"stuffed__{own}", described, {}, json.dumps(tool).encode()))
    return tuple(tools)


def _cost(tools: Sequence[ToolDescriptor]) -> int:
    return sum(tokens_of_tool(shown) for shown in Catalog().publish(tools, VERSION))


def main() -> None:
    print(f"tokens: {TOKENIZER}; {len(questions())} questions; right tool first / among 5 / among {MAX_LIMIT}")
    for tools in (tools_of(DECK), tools_of()):
        found = asyncio.run(measure(tools))
        print(
            f"{found.servers} servers, {found.tools} tools: {found.before:,} tokens, {found.after} with --search, "
            f"{found.answer:,} an answer; {found.first} / {found.fifth} / {found.twentieth}"
        )
        print(f"  not among 5: {'; '.join(found.missed)}")
    for place in ("name", "title", "description"):
        found = asyncio.run(measure((*stuffed(place), *tools_of(DECK))))
        print(f"beside a server that has every question's words in each {place}: {found.fifth} among {DEFAULT_LIMIT}")
    print(f"groups of the first deck, of {_cost(tools_of(DECK)):,} tokens: tools, tokens, tokens with --search")
    for group in measure_groups(tools_of(DECK)):
        print(f"  {group.name}: {group.tools}, {group.tokens:,}, {group.searched}")


if __name__ == "__main__":
    main()
