"""The names around a server, as the scan needs them: of every tool that the book knows, held ones too.  Pure.

What was recorded counts, and not who has answered first: who lists late, or lists nothing that is admitted, has names
all the same.
"""

from collections.abc import Collection, Mapping

from quarterdeck.ledger.book import Book, ServerKey
from quarterdeck.ledger.events import Subject

from .scan import Siblings

Names = Mapping[ServerKey, tuple[str, ...]]
"""The tools of each server, by its own names."""


def known_names(book: Book) -> Names:
    """The tools of each server that are offered or were approved; servers without any are left out."""
    names = {
        key: tuple(
            item_key.name
            for item_key, item in entry.items.items()
            if item_key.subject is Subject.TOOL and (item.seen or item.approved)
        )
        for key, entry in book.entries.items()
    }
    return {key: found for key, found in names.items() if found}


def around(
    names: Names, scope: str, server: str, *, own: Collection[str] | None = None, native: Collection[str] = ()
) -> Siblings:
    """The names around one server.

    Args:
        names: those that are known.
        scope: the file of the server's row.
        server: its id; the server of this id in another file is the same to a person, and none of its neighbours.
        own: its own tools; those that are known by default.
        native: native tools that are served beside it.
    """
    others: dict[str, list[str]] = {}
    for key, found in names.items():
        if key.server != server:
            others.setdefault(key.server, []).extend(found)
    mine = names.get(ServerKey(scope, server), ()) if own is None else own
    return Siblings.of(own=mine, native=native, others=others)
