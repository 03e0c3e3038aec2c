"""The words that a tool is found by, and those of a question.  Pure.

A definition is a server's own: whatever is read of it is bounded here, and what is not of the shape that one expects of
it is passed over.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from quarterdeck_protocol.tools import ToolDescriptor

MAX_QUESTION_CHARS: Final = 1_000

MAX_QUESTION_WORDS: Final = 32
"""Different ones of one question; the first count."""

MAX_NAME_CHARS: Final = 128
"""Of a tool's name, with its server's; what follows is not found, here and below."""

MAX_TITLE_CHARS: Final = 200

MAX_FIELD_CHARS: Final = 1_000
"""Of a description, and of all that is said of parameters.  What a tool is for is said first: of the bench's questions
more are answered so than with all of it, and who fills pages with words is found by fewer."""

_MAX_SCHEMA_NODES: Final = 1_000
"""Objects of one schema that are looked at."""

_HUMP: Final = re.compile(r"(?<=[^\W_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Where a word begins in `createIssue`, and in `HTTPServer`."""

_WORD: Final = re.compile(r"[^\W_]+")

_COMMON: Final = frozenset(
    word
    for line in (
        "a about all am an and any are as at be by can do does for from has have how i if in into is it its me my",
        "of on or our please that the their them there this to us want was we what when where which who will with",
        "would you your",
    )
    for word in line.split()
)
"""English words that tell no tool from another, and in a small deck would seem to."""


class ToolWords(msgspec.Struct, frozen=True):
    """What a tool is found by, each a text."""

    name: str
    title: str
    description: str
    parameters: str


def words_of_tool(tool: ToolDescriptor) -> ToolWords:
    """The words of a tool as a client is shown it."""
    title, schema = tool.title, tool.parameters
    if tool.definition is not None:
        try:
            shown = _shown.decode(tool.definition)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            shown = _Shown()
        title = shown.title if isinstance(shown.title, str) else ""
        schema = shown.inputSchema if isinstance(shown.inputSchema, dict) else {}
    return ToolWords(
        split_words(tool.name[:MAX_NAME_CHARS]),
        split_words(title[:MAX_TITLE_CHARS]),
        split_words(tool.description[:MAX_FIELD_CHARS]),
        split_words(" ".join(_said_of(schema))[:MAX_FIELD_CHARS]),
    )


def words_of_question(question: str) -> tuple[str, ...]:
    """The different words of a question that may tell a tool from another; of one without such words, all."""
    found = dict.fromkeys(word.lower() for word in _WORD.findall(split_words(question[:MAX_QUESTION_CHARS])))
    telling = [word for word in found if word not in _COMMON]
    return tuple((telling or list(found))[:MAX_QUESTION_WORDS])


def split_words(text: str) -> str:
    """The text with its names taken apart: at `_`, and before a capital inside a word."""
    return _HUMP.sub(" ", text.replace("_", " "))


def _said_of(schema: object) -> Iterator[str]:
    """The names of all properties of a schema, and their titles and descriptions; outer ones first."""
    queue: list[object] = [schema]
    for node in queue:
        if isinstance(node, list):
            queue.extend(node[: max(0, _MAX_SCHEMA_NODES - len(queue))])
        if not isinstance(node, dict):
            continue
        yield from (
            text for key in ("title", "description") if node is not schema and isinstance(text := node.get(key), str)
        )
        properties = node.get("properties")
        inner = [each for key in _INNER if (each := node.get(key)) is not None]
        if isinstance(properties, dict):
            yield from (name for name in properties if isinstance(name, str))
            inner = [*properties.values(), *inner]
        queue.extend(inner[: max(0, _MAX_SCHEMA_NODES - len(queue))])


_INNER: Final = ("items", "anyOf", "oneOf", "allOf", "additionalProperties")
"""Keywords below which a schema may name further properties."""


class _Shown(msgspec.Struct, gc=False):
    title: object = ""
    inputSchema: object = None  # noqa: N815 - the wire's name


_shown: Final = msgspec.json.Decoder(_Shown)
