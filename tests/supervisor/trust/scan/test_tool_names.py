"""Names that are taken for others, and names that a description has no business with."""

import pytest
from support.trust.approvals import FILE, book_of

from quarterdeck.ledger.events.events import Approved, Authority, Gone, Seen, Subject
from quarterdeck.ledger.events.fold import ServerKey
from quarterdeck.trust.scan.tool_names import NameIndex, NameOwner, is_telling, names_around, names_by_server, skeleton

AROUND = NameIndex({"github": ["create_issue", "search"], "mail": ["send_email"]}).around(
    "", own=["add", "list_items"], native=["read", "bash"]
)


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("rеad", "read"),  # Cyrillic е
        ("Read", "read"),
        ("ｂａｓｈ", "bash"),
        ("github", None),
        ("glthub", None),
        ("gіthub", "github"),  # Cyrillic і
        ("create_lssue", None),
        ("create_іssue", "create_issue"),
        ("send_emai1", "send_email"),
        ("send_emaiI", "send_email"),
        ("1ist_items", "list_items"),
        ("create-issue", None),
        ("Create_Issue", None),
        ("create_issue", None),
        ("write", None),
        ("r\u200bead", "read"),
    ],
)
def test_a_name_that_looks_like_another_is_told(name: str, owner: str | None) -> None:
    """A person who reads `rеad` approves `read`."""
    found = AROUND.mistaken_for(name)
    assert (found.name if found else None) == owner


def test_look_alikes_share_a_skeleton_and_others_do_not() -> None:
    """l, I and 1, O and 0, rn and m: what fonts do not tell apart."""
    assert len({skeleton(name) for name in ("list0", "1istO", "Iist0")}) == 1
    assert skeleton("modern") == skeleton("modem")
    assert len({skeleton(name) for name in ("read", "write", "lead", "读")}) == 4


def test_tools_of_others_are_found_by_their_qualified_names_and_those_of_clients() -> None:
    """Attackers write down the name that the model sees."""
    text = "Call mcp__github__create_issue, mcp_tool_send_email, github__search or github_create_issue; search, add."
    assert [(name, is_qualified) for name, _, _, is_qualified in AROUND.mentions(text)] == [
        ("mcp__github__create_issue", True),
        ("mcp_tool_send_email", False),
        ("github__search", True),
        ("github_create_issue", True),
    ]


def test_the_own_tools_of_a_server_are_its_own_business() -> None:
    """Two file servers both have `read_file`, and both speak of it."""
    around = NameIndex({"other": ["read_file"]}).around("", own=["read_file"])
    assert list(around.mentions("Use read_file before edit_file.")) == []


def test_common_words_name_nobody() -> None:
    """`search` is a tool of half of all servers."""
    assert [is_telling(name) for name in ("search", "add", "send_email", "createIssue", "echo")] == [
        *(False, False, True, True, False),
    ]


SCOPE = str(FILE)


def seen(server: str, name: str, scope: str = SCOPE, subject: Subject = Subject.TOOL) -> Seen:
    return Seen(scope=scope, server=server, subject=subject, name=name, hash="1" * 64)


def test_what_is_held_has_a_name_and_what_is_gone_for_good_has_none() -> None:
    """Under `strict` nothing would be anybody's neighbour; and tools of last year would be for ever."""
    where = {"scope": SCOPE, "server": "mail", "subject": Subject.TOOL}
    found = names_by_server(
        book_of(
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
        book_of(seen("mail", "send_email"), seen("mail", "send_email", "/other.json"), seen("fs", "read_it"))
    )
    known = names_around(names, SCOPE, "mail")
    assert known.own == {"send_email"}
    said = "fs__read_it mail__send_email send_email"
    assert [name for name, *_ in known.mentions(said)] == ["fs__read_it"]
    assert known.mistaken_for("send_emai1") == NameOwner("send_email", "another tool of the same server")


def test_among_many_servers_of_one_name_each_has_a_neighbour() -> None:
    """A third server's tool would not be told apart from those of the first two."""
    index = NameIndex({server: ["send_email"] for server in ("a", "b", "c", "d")})
    for server in ("a", "b", "c", "d"):
        around = index.around(server, own=["send_emai1"])
        assert around.mistaken_for("send_emai1") is not None
        assert [name for name, *_ in around.mentions("call send_email, or b__send_email")] == (
            ["send_email"] if server == "b" else ["send_email", "b__send_email"]
        )


def test_an_index_that_was_changed_says_what_a_new_one_would() -> None:
    """A tool that is gone would be warned of for ever, or a neighbour's with it that is still there."""
    names = {"a": ["send_email", "Send-Email"], "b": ["send_email"], "c": ["other_tool"]}
    index = NameIndex({**names, "d": ["send_email", "once_more"]})
    index.put("d", ())
    index.put("a", ["send_email"])
    index.put("a", names["a"])
    fresh = NameIndex(names)
    said = "send_email, once_more, d__once_more, a__send_email, c_other_tool"
    for server in ("a", "b", "c", "e"):
        changed, new = (each.around(server, own=["send_emai1", "оnce_more"]) for each in (index, fresh))
        assert list(changed.mentions(said)) == list(new.mentions(said))
        assert (changed.mistaken_for("send_emai1") is None) is (new.mistaken_for("send_emai1") is None)
        assert changed.mistaken_for("оnce_more") is None
    assert index.version > fresh.version
    index.put("a", ())
    index.put("b", ())
    index.put("c", ())
    assert [*index._owners, *index._qualified, *index._plain, *index._names] == []
