"""`deck.lock`: what it says, what it admits, and what it refuses to be read as."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.ledger.events.chain import Head
from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.trust.judge.documents import Document, capabilities_document, hash_of, instructions_document
from quarterdeck.trust.judge.server_rows import LockedSeal
from quarterdeck.trust.lock.ignores import Ignores
from quarterdeck.trust.lock.lockfile import (
    DeckLock,
    Drift,
    LockChange,
    LockError,
    difference,
    drift,
    lock_of,
    parse_lock,
    render,
)

HEAD = Head(42, "ab" * 32)


def tool(name: str, description: str = "") -> Document:
    body = json.dumps({"name": name, "description": description}).encode()
    return Document(ItemKey(Subject.TOOL, name), hash_of(body), body)


def launch() -> Document:
    return Document(ItemKey(Subject.LAUNCH), hash_of(b"1"), b"1")


TIME = (instructions_document("Ask me."), tool("now"), tool("zone"))
SEAL = LockedSeal("5e" * 32, "npx time@1.2.0", "the lock")
LOCK = lock_of(
    {"time": TIME, "fs": [instructions_document(""), tool("read")]},
    Ignores(),
    HEAD,
    {"time": "time 1.2"},
    seals={"time": SEAL},
)


def test_a_lock_is_read_as_it_was_written() -> None:
    """What was locked on one machine would be something else on the next."""
    again = parse_lock(render(LOCK))
    assert again == LOCK
    assert again.head == HEAD


def test_a_lock_looks_as_documented_and_sorted() -> None:
    """A user could not read, or merge, what is under version control."""
    text = render(LOCK)
    assert text.endswith("}\n")
    assert json.loads(text) == {
        "version": 2,
        "ledger": {"count": 42, "hash": "ab" * 32},
        "servers": {
            "fs": {"instructions": instructions_document("").hash, "tools": {"read": tool("read").hash}},
            "time": {
                "package": "time 1.2",
                "seal": {"digest": "5e" * 32, "words": "npx time@1.2.0", "lock": "the lock"},
                "instructions": instructions_document("Ask me.").hash,
                "tools": {"now": tool("now").hash, "zone": tool("zone").hash},
            },
        },
    }
    assert text.index('"fs"') < text.index('"time"')
    assert render(parse_lock(text)) == text


def test_one_changed_tool_is_one_changed_line() -> None:
    """A reviewer would have to compare the whole file."""
    changed = lock_of(
        {"time": (TIME[0], tool("now", "evil"), TIME[2]), "fs": ()}, Ignores(), HEAD, {"time": "time 1.2"}
    )
    before = render(lock_of({"time": reversed(TIME), "fs": ()}, Ignores(), HEAD, {"time": "time 1.2"})).splitlines()
    after = render(changed).splitlines()
    assert [one != other for one, other in zip(before, after, strict=True)].count(True) == 1


def test_how_a_server_is_launched_is_not_in_a_lock() -> None:
    """A lock would fail on every machine but the one that made it."""
    assert lock_of({"s": [launch()]}, Ignores(), HEAD).servers["s"].forms == {}
    assert not LOCK.for_server("time").admits(launch())


def test_a_lock_admits_what_it_names_and_nothing_else() -> None:
    """A machine that follows a lock would run what the lock does not name."""
    own = LOCK.for_server("time")
    assert all(own.admits(document) for document in TIME)
    assert not own.admits(tool("now", "evil"))
    assert not own.admits(tool("more"))
    assert not own.admits(instructions_document(""))
    assert not LOCK.for_server("fs").admits(tool("now"))
    assert not LOCK.for_server("unknown").admits(tool("now"))


def test_an_ignore_that_was_added_later_is_drift_until_the_lock_is_written_anew() -> None:
    """A line in lock.ignore would loosen a lock that nobody looked at again."""
    later = parse_lock(render(LOCK), Ignores.parse("time instructions"))
    assert drift(later, {"time": TIME, "fs": [instructions_document(""), tool("read")]}) == (
        Drift("time", ItemKey(Subject.INSTRUCTIONS), LockChange.CHANGED),
    )


def test_drift_tells_what_changed_was_added_is_missing_or_absent() -> None:
    """A build would fail without a word about why."""
    present = {"time": [instructions_document(""), tool("now", "evil"), tool("more")], "new": [tool("x")]}
    assert drift(LOCK, present) == (
        Drift("fs", None, LockChange.ABSENT),
        Drift("new", None, LockChange.ADDED),
        Drift("time", ItemKey(Subject.INSTRUCTIONS), LockChange.CHANGED),
        Drift("time", ItemKey(Subject.TOOL, "more"), LockChange.ADDED),
        Drift("time", ItemKey(Subject.TOOL, "now"), LockChange.CHANGED),
        Drift("time", ItemKey(Subject.TOOL, "zone"), LockChange.MISSING),
    )


def test_two_locks_say_the_same_whatever_ledger_they_are_from() -> None:
    """The file would change with every event of the ledger."""
    other = DeckLock(Head(7, "cd" * 32), LOCK.servers)
    assert LOCK.says_the_same(other)
    assert difference(LOCK, other) == ()
    assert not LOCK.says_the_same(lock_of({"time": TIME}, Ignores(), HEAD))


def test_a_server_that_gives_itself_an_endless_name_can_be_locked() -> None:
    """A lock would be written that cannot be read."""
    lock = lock_of({"time": TIME}, Ignores(), HEAD, {"time": "x" * 100_000})
    assert parse_lock(render(lock)) == lock


def test_names_that_hide_characters_show_them() -> None:
    """A reviewer would approve a name that looks like another."""
    text = render(lock_of({"s": [tool("a\u202eb")]}, Ignores(), HEAD))
    assert text.isascii()
    assert "a\\u202eb" in text
    assert list(parse_lock(text).servers["s"].forms) == [ItemKey(Subject.TOOL, "a\u202eb")]


def edited(change: Callable[[Any], object]) -> str:
    value = json.loads(render(LOCK))
    change(value)
    return json.dumps(value, indent=2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("{", "line 1, column 2: the text ends before the JSON does"),
        ("[]", "the lock: an object is expected here"),
        ("{}", "'version' is missing"),
        ("[" * 100_000, "nested deeper"),
        ("<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> theirs\n", "merge conflict"),
        (edited(lambda lock: lock.update(version=3)), "its version is 3"),
        (edited(lambda lock: lock.update(version=True)), "its version is true"),
        (edited(lambda lock: lock.update(server={})), "'server' is not known: did you mean 'servers'?"),
        (edited(lambda lock: lock.pop("ledger")), "'ledger' is missing"),
        (edited(lambda lock: lock["ledger"].update(count=-1)), "ledger.count: a number of events is expected here"),
        (edited(lambda lock: lock["ledger"].update(count=True)), "ledger.count: "),
        (edited(lambda lock: lock["ledger"].update(hash="x")), "ledger.hash: 64 hex digits belong here"),
        (edited(lambda lock: lock.update(servers=[])), "servers: an object is expected here"),
        (
            edited(lambda lock: lock["servers"].update({"a__b": {"tools": {}}})),
            "servers.a__b: this is not a server's id",
        ),
        (edited(lambda lock: lock["servers"]["fs"].pop("tools")), "servers.fs: 'tools' is missing"),
        (edited(lambda lock: lock["servers"]["time"]["seal"].pop("words")), "servers.time.seal: 'words' is missing"),
        (edited(lambda lock: lock["servers"]["time"]["seal"].update(lock=1)), "servers.time.seal.lock: a text"),
        (edited(lambda lock: lock["servers"]["time"]["seal"].update(digest="x")), "seal.digest: 64 hex digits"),
        (edited(lambda lock: lock["servers"]["time"]["seal"].update(has_run_scripts=1)), "scripts: true or false"),
        (edited(lambda lock: lock["servers"]["fs"]["tools"].update(read="AB" * 32)), "servers.fs.tools.read: 64 hex"),
        (edited(lambda lock: lock["servers"]["fs"]["tools"].update(read="ignored")), "servers.fs.tools.read: 64 hex"),
        (edited(lambda lock: lock["servers"]["fs"].update(instructions=None)), "servers.fs.instructions: 64 hex"),
        (edited(lambda lock: lock["servers"]["fs"].update(package=1)), "servers.fs.package: a text"),
        (edited(lambda lock: lock["servers"]["fs"].update(tool={})), "did you mean 'tools'?"),
        (render(LOCK).replace('"read":', f'"read": "{"0" * 64}", "read":'), "servers.fs.tools: 'read' is given twice"),
    ],
)
def test_what_is_no_lock_is_refused_with_the_place(text: str, said: str) -> None:
    """A lock would be read as something that nobody wrote."""
    with pytest.raises(LockError) as raised:
        parse_lock(text)
    assert said in str(raised.value)


def test_a_lock_of_any_size_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's repository could fill the memory."""
    monkeypatch.setattr("quarterdeck.trust.lock.lockfile.MAX_LOCK_BYTES", 10)
    with pytest.raises(LockError, match="larger than 10 bytes"):
        parse_lock(render(LOCK))


NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=6)
SERVERS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.dictionaries(NAMES, st.integers(0, 2), max_size=4), max_size=3
)


def documents(servers: dict[str, dict[str, int]]) -> dict[str, list[Document]]:
    return {server: [tool(name, str(version)) for name, version in tools.items()] for server, tools in servers.items()}


@given(SERVERS, SERVERS)
def test_a_lock_admits_just_what_is_no_drift(
    locked: dict[str, dict[str, int]], there: dict[str, dict[str, int]]
) -> None:
    """`lock --check` would pass, and `serve --locked` hold tools; or the other way round."""
    lock = parse_lock(render(lock_of(documents(locked), Ignores(), HEAD)))
    drifted = {(each.server, each.key) for each in drift(lock, documents(there)) if each.what is not LockChange.MISSING}
    for server, present in documents(there).items():
        for document in present:
            is_drift = (server, document.key) in drifted or (server, None) in drifted
            assert lock.for_server(server).admits(document) is not is_drift


PROMPT = Document(ItemKey(Subject.PROMPT, "plan"), hash_of(b'{"name":"plan"}'), b'{"name":"plan"}')
SAID = capabilities_document(b'{"tools":{},"prompts":{}}')


def test_prompts_and_capabilities_are_locked_and_read_again() -> None:
    """A prompt could change under a lock."""
    lock = lock_of({"time": (*TIME, SAID, PROMPT)}, Ignores(), HEAD)
    assert parse_lock(render(lock)) == lock
    assert lock.for_server("time").admits(PROMPT)
    other = Document(PROMPT.key, "0" * 64, b"{}")
    assert not lock.for_server("time").admits(other)
    assert [(each.key, each.what) for each in drift(lock, {"time": (*TIME, SAID, other)})] == [(PROMPT.key, "changed")]


def test_a_lock_of_an_older_version_stays_valid_for_what_it_names() -> None:
    """After an update each locked deck would end; or offer what nobody locked."""
    text = render(lock_of({"time": TIME}, Ignores(), HEAD)).replace('"version": 2', '"version": 1')
    old = parse_lock(text)
    assert drift(old, {"time": (*TIME, SAID, PROMPT)}) == ()
    assert all(old.for_server("time").admits(document) for document in TIME)
    assert not old.for_server("time").admits(PROMPT)
