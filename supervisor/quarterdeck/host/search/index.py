"""Rank tools by a question: Okapi BM25, by SQLite's full-text search, over an index in memory.

SQLite ships with Python, ranks by BM25 with a weight for each column, and stems English words; libraries that do the
same bring NumPy along (`bm25s`) or are not maintained any more (`rank-bm25`).
"""

import sqlite3
import weakref
from collections.abc import Sequence
from typing import Final

from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.tools import ToolDescriptor

from .words import words_of_question, words_of_tool

WEIGHTS: Final = (6.0, 3.0, 2.0, 0.5)
"""Of the name, the title, the description and the parameters: what a tool is called says most of what it is for."""

_TABLE: Final = (
    "CREATE VIRTUAL TABLE tools USING fts5(name, title, description, parameters, "
    "tokenize = 'porter unicode61 remove_diacritics 2', columnsize = 1)"
)

_RANKED: Final = (
    f"SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, {', '.join(map(str, WEIGHTS))}), rowid"  # noqa: S608 - numbers of ours
)


class ToolIndex:
    """An index of tools; what it is of never changes.

    Attributes:
        tools: the tools.

    Raises:
        ProtocolFault: this Python's SQLite has no full-text search.
    """

    def __init__(self, tools: Sequence[ToolDescriptor]) -> None:
        self.tools: Final = tuple(tools)
        # Built in one thread and asked from others, never from two at once.
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._database.close)
        rows = ((number, *_row(tool)) for number, tool in enumerate(self.tools))
        try:
            self._database.execute(_TABLE)
        except sqlite3.OperationalError as error:
            why = f"tools cannot be searched: {_missing(error)}"
            raise ProtocolFault(FaultKind.TOOL_ERROR, why, error, delivery=Delivery.NOT_SENT) from error
        with self._database:
            self._database.executemany(
                "INSERT INTO tools(rowid, name, title, description, parameters) VALUES (?, ?, ?, ?, ?)", rows
            )

    def ranked(self, question: str) -> list[ToolDescriptor]:
        """The tools that share a word with the question, best first; ties in the order of the deck."""
        words = words_of_question(question)
        if not words:
            return []
        # Each word is a string to SQLite, not an operator of its query language.
        wanted = " OR ".join(f'"{word}"' for word in words)
        return [self.tools[number] for (number,) in self._database.execute(_RANKED, (wanted,))]


def missing_reason() -> str:
    """Why tools cannot be ranked here; empty when they can."""
    database = sqlite3.connect(":memory:")
    try:
        database.execute(_TABLE)
    except sqlite3.OperationalError as error:
        return _missing(error)
    finally:
        database.close()
    return ""


def _missing(error: sqlite3.OperationalError) -> str:
    return f"this Python's SQLite {sqlite3.sqlite_version} has no full-text search (FTS5): {error}"


def _row(tool: ToolDescriptor) -> tuple[str, ...]:
    words = words_of_tool(tool)
    # A lone surrogate is no text to SQLite.
    return tuple(
        text.encode("utf-8", "replace").decode()
        for text in (words.name, words.title, words.description, words.parameters)
    )
