"""The documentation's pages, and the blocks of code in them.

A comment on the line above a block says what its test needs to know: `<!-- not run: reason -->`, or
`<!-- stage: name -->` for what has to be prepared (see `document_stage`).
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

PROGRAM: Final = "quarterdeck"

FENCED: Final = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

SPAN: Final = re.compile(r"`(quarterdeck [^`\n]+)`")

COMMAND_END: Final = frozenset({"<", ">", "|", "&&", ";"})


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block.

    Attributes:
        page: of which file, relative to the repository.
        language: as the fence says it.
        text: between the fences.
        not_run: why it is only parsed, or nothing.
        stage: what is prepared before it runs, or nothing.
    """

    page: str
    language: str
    text: str
    not_run: str
    stage: str

    def lines(self) -> Iterator[str]:
        """The command lines, without empty ones and comments."""
        for line in self.text.splitlines():
            if shlex.split(line, comments=True):
                yield line


def pages() -> list[Path]:
    """Every page that is written for people, the changelog aside: it tells what was."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]
    return sorted({page for page in found if page.name != "CHANGELOG.md"})


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(language: str) -> list[Block]:
    return [block for page in pages() for block in blocks_of(page) if block.language == language]


def blocks_of(page: Path) -> Iterator[Block]:
    for comment, language, text in FENCED.findall(text_of(page)):
        kind, _, value = comment.partition(": ")
        yield Block(
            str(page.relative_to(ROOT)),
            language,
            text,
            value if kind == "not run" else "",
            value if kind == "stage" else "",
        )


def spans() -> list[tuple[str, str]]:
    """Every `quarterdeck …` that is named within a sentence, with its page."""
    return [(str(page.relative_to(ROOT)), span) for page in pages() for span in SPAN.findall(text_of(page))]


def own_commands(line: str) -> Iterator[list[str]]:
    """The arguments of each `quarterdeck …` in a shell's command line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="<>|&;")
    lexer.whitespace_split = True
    current: list[str] | None = None
    is_first = True
    for word in lexer:
        if word in COMMAND_END:
            if current is not None:
                yield current
            current, is_first = None, word in {"|", "&&", ";"}
        elif current is not None:
            current.append(word)
        elif is_first:
            is_first = False
            current = [] if Path(word).name == PROGRAM else None
    if current is not None:
        yield current
