"""Neighbours are whoever the book knows, whatever has answered, and whatever of it is held."""

from support.trust.approvals import AT, FILE

from quarterdeck.ledger.events.events import Approved, Authority, Gone, LedgerEvent, Seen, Stored, Subject
from quarterdeck.ledger.events.fold import Book, ServerKey
from quarterdeck.trust.scan.tool_names import names_around, names_by_server

SCOPE = str(FILE)


def seen(server: str, name: str, scope: str = SCOPE, subject: Subject = Subject.TOOL) -> Seen:
    return Seen(scope=scope, server=server, subject=subject, name=name, hash="1" * 64)


def book(*events: LedgerEvent) -> Book:
    return Book.of(Stored(number, AT, event) for number, event in enumerate(events, 1))


def test_what_is_held_has_a_name_and_what_is_gone_for_good_has_none() -> None:
    """Under `strict` nothing would be anybody's neighbour; and tools of last year would be for ever."""
    where = {"scope": SCOPE, "server": "mail", "subject": Subject.TOOL}
    found = names_by_server(
        book(
            seen("mail", "send_email"),
            seen("mail", "once"),
            Gone(**where, name="once"),
            seen("mail", "kept"),
            Approved(**where, name="kept", hash="1" * 64, by=Authority.PERSON),
            Gone(**where, name="kept"),
            seen("quiet", "", subject=Subject.LAUNCH),
        )
    )
    assert found == {ServerKey(SCOPE, "mail"): ("send_email", "kept")}


def test_a_server_is_no_neighbour_of_itself() -> None:
    """The same server in two files would be said to shadow itself."""
    names = names_by_server(
        book(seen("mail", "send_email"), seen("mail", "send_email", "/other.json"), seen("fs", "read_it"))
    )
    known = names_around(names, SCOPE, "mail", native={"bash"})
    assert known.own == {"send_email"}
    assert known.native == {"bash"}
    assert known.qualified >= {"fs__read_it"}
    assert not any("send_email" in name for name in known.qualified)
    assert names_around(names, SCOPE, "mail", own=["now"]).own == {"now"}
