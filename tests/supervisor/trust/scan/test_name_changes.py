"""Which lists a name concerns that came or went: those that could name it or be confused with it, and no others."""

import pytest
from support.trust.approvals import AT, FILE

from quarterdeck.ledger.events.events import Gone, LedgerEvent, Seen, Stored, Subject
from quarterdeck.ledger.events.fold import Book
from quarterdeck.trust.scan.name_changes import BookNames, NameChanges, NamesInList

SCOPE = str(FILE)

MAIL = NameChanges({"mail": ["send_email", "search"]})


def seen(server: str, name: str, scope: str = SCOPE) -> Seen:
    return Seen(scope=scope, server=server, subject=Subject.TOOL, name=name, hash="1" * 64)


def gone(server: str, name: str) -> Gone:
    return Gone(scope=SCOPE, server=server, subject=Subject.TOOL, name=name)


def tell(book: Book, *events: LedgerEvent) -> None:
    for event in events:
        book.apply(Stored(book.last_seq + 1, AT, event))


@pytest.mark.parametrize(
    ("text", "is_concerned"),
    [
        ("Call Send_Email first.", True),
        ("mcp__mail__search, then", True),
        ("use mail.send_email.", True),
        ("ｓｅｎｄ_ｅｍａｉｌ", True),
        ("search", False),
        ("it sends emails", False),
        ("my_send_email", False),
    ],
)
def test_a_text_that_may_name_a_tool_is_told_from_others(text: str, is_concerned: bool) -> None:
    """A lie about a tool that came later would not be looked for; or every list be scanned at each change of one."""
    assert MAIL.concern("fs", NamesInList.read(["add"], ["Adds.", text])) is is_concerned
    assert not MAIL.concern("mail", NamesInList.read(["add"], [text]))


def test_a_name_that_looks_like_one_that_came_is_concerned() -> None:
    """A server that was there first would keep a name that its new neighbour's is taken for."""
    assert MAIL.concern("fs", NamesInList.read(["send_emai1"], []))
    assert not MAIL.concern("fs", NamesInList.read(["send_letter"], []))


def test_only_what_changed_is_told_and_taken() -> None:
    """Each change of one server would cost a look at all of them."""
    names, book = BookNames(), Book()
    tell(book, seen("mail", "send_email"), seen("fs", "read_it"), seen("quiet", "", SCOPE))
    assert set(names.news(book)) >= {(SCOPE, "mail"), (SCOPE, "fs")}
    names = BookNames()
    names.take(names.news(book))
    assert not names.news(book)
    tell(book, seen("fs", "write_it"))
    news = names.news(book)
    assert news == {(SCOPE, "fs"): ("read_it", "write_it")}
    changed = names.take(news)
    assert changed.concern("mail", NamesInList.read([], ["fs__write_it"]))
    assert not changed.concern("mail", NamesInList.read([], ["fs__read_it"]))
    assert names.index.is_plain("write_it", "mail")


def test_a_server_that_came_or_went_is_a_name_itself() -> None:
    """A tool that is called like a server would pass for it."""
    names, book = BookNames(), Book()
    like_it = NamesInList.read(["mai1"], [])
    tell(book, seen("mail", "send_email"))
    assert names.take(names.news(book)).concern("fs", like_it)
    tell(book, seen("mail", "other"))
    assert not names.take(names.news(book)).concern("fs", like_it)
    tell(book, gone("mail", "other"), gone("mail", "send_email"))
    assert names.take(names.news(book)).concern("fs", like_it)
    assert not names.index.is_plain("send_email", "fs")


def test_a_server_of_two_files_keeps_the_names_of_the_other() -> None:
    """What is taken out of one file would not be looked for any more, though the other has it."""
    names, book = BookNames(), Book()
    tell(book, seen("mail", "send_email"), seen("mail", "read_email", "/other.json"))
    names.take(names.news(book))
    tell(book, gone("mail", "send_email"))
    names.take(names.news(book))
    assert (names.index.is_plain("read_email", "fs"), names.index.is_plain("send_email", "fs")) == (True, False)
