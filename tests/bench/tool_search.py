"""What `serve --search` spares a model, and whether it finds what is looked for, over the tools of public servers.

    python tests/bench/tool_search.py

Nothing is started: the definitions are those that tests/collect_tools.py took from the servers.  The questions are in
tool_questions.tsv.  Tokens are what `quarterdeck tools --tokens` says.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.servers.real_tools import read_servers

from quarterdeck.common.tokens import TOKENIZER, estimated_tokens, tokens_of_tool
from quarterdeck.host.offers.content import Content
from quarterdeck.host.offers.publish import Catalog
from quarterdeck.host.search.index import ToolIndex
from quarterdeck.host.search.tool_search import MAX_LIMIT, ToolSearch
from quarterdeck_protocol.tools import ANONYMOUS, ToolDescriptor, as_source

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

VERSION: Final = "2025-11-25"


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
        first: questions of which a right tool came first; `fifth` among the first five, `twentieth` among twenty.
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
    """All of them."""
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
    """Ask a deck of these tools all questions."""
    box, search = as_source(_Box(tools)), ToolSearch()
    content = Content(box=box, name="bench", version="0", search=search)
    index, ranks, answers = ToolIndex(tools), list[int](), 0
    asked = questions()
    for question in asked:
        found = [tool.name for tool in index.ranked(question.text)]
        ranks.append(next((rank for rank, name in enumerate(found, 1) if name in question.right), len(tools) + 1))
        answer = await search.answer({"query": question.text}, box, ANONYMOUS, VERSION)
        assert isinstance(answer, str)
        answers += estimated_tokens(answer)
    return Measured(
        servers=len({tool.name.partition("__")[0] for tool in tools}),
        tools=len(tools),
        before=_cost(tools),
        after=_cost(content.tools_for(ANONYMOUS).descriptors()),
        answer=round(answers / len(asked)),
        first=sum(rank == 1 for rank in ranks),
        fifth=sum(rank <= 5 for rank in ranks),
        twentieth=sum(rank <= MAX_LIMIT for rank in ranks),
        missed=tuple(each.text for each, rank in zip(asked, ranks, strict=True) if rank > 5),
    )


def _cost(tools: Sequence[ToolDescriptor]) -> int:
    return sum(tokens_of_tool(shown) for shown in Catalog().publish(tools, VERSION))


def main() -> None:
    """Print the table."""
    print(f"tokens: {TOKENIZER}; {len(questions())} questions; right tool first / among 5 / among {MAX_LIMIT}")
    for tools in (tools_of(DECK), tools_of()):
        found = asyncio.run(measure(tools))
        print(
            f"{found.servers} servers, {found.tools} tools: {found.before:,} tokens, {found.after} with --search, "
            f"{found.answer:,} an answer; {found.first} / {found.fifth} / {found.twentieth}"
        )
        print(f"  not among 5: {'; '.join(found.missed)}")


if __name__ == "__main__":
    main()
