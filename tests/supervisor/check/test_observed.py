"""What is concluded from events in a world of decoys, and which of it is a finding."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from quarterdeck.check.decoys import DecoyKind, make_decoys
from quarterdeck.check.episode import Did, Ending, Episode, Exchange, Marked, Recording, Touches
from quarterdeck.check.judge.behaviour import judge_decoys
from quarterdeck.check.observed import MAX_TOUCHED, AskedHost, Need, Observed, Taken, Touch, newly_done, observe

DECOYS = make_decoys((f"{at * 0x9E3779B97F4A7C15F39C:020x}"[-20:] for at in range(1, 50)).__next__)
KEY, DOCUMENT, SETTING = ".ssh/id_ed25519", "Documents/budget.csv", ".gitconfig"


def call(tool: str, *seen: tuple[Did, str], request_id: int = 1, method: str = "tools/call", **facts: bool) -> Exchange:
    touches = Touches(seen, **facts)
    return Exchange("call", method, {}, request_id, Ending.ANSWERED, {}, subject=tool, touches=touches)


def recorded(
    *exchanges: Exchange, idle: Iterable[tuple[Did, str]] = (), marked: Iterable[Marked] = (), runner: bool = False
) -> Recording:
    episode = Episode("calls", "2025-11-25", list(exchanges), touches=[Touches(tuple(idle))], marked=list(marked))
    return Recording((episode,), decoys=DECOYS, has_runner=runner)


def findings(recording: Recording) -> dict[str, int]:
    """The number of problems of each check that has a verdict."""
    verdicts = list(judge_decoys(recording))
    return {name: sum(bool(each.problem) for each in verdicts if each.check == name) for name, *_ in verdicts}


def test_a_later_version_is_told_by_what_an_earlier_one_did_not_do() -> None:
    """An upgrade that reads more would pass, or be held for what its server always did."""
    before = Observed(
        (Touch("~/a", Did.OPENED, DecoyKind.DOCUMENT), Touch("~/.cache", Did.MADE, None)), hosts=(AskedHost("h"),)
    )
    after = Observed(
        (*before.touched, Touch("~/a", Did.CHANGED, DecoyKind.DOCUMENT), Touch("~/.new", Did.MADE, None)),
        (Need("write", "~/a", ("edit",)),),
        hosts=(AskedHost("h", ("go",)), AskedHost("h:1")),
    )
    assert newly_done(before, after) == ("changed ~/a", "needs to write ~/a", "asked for h:1")
    assert newly_done(after, before) == ()


def test_what_was_opened_is_told_with_the_tools_that_did_it() -> None:
    """A reader could not tell the tool that steals from those that do their work."""
    observed = observe(
        recorded(
            call("list", (Did.OPENED, DOCUMENT), (Did.LISTED, "Documents")),
            call("read", (Did.OPENED, DOCUMENT), request_id=2),
            idle=[(Did.OPENED, KEY), (Did.OPENED, SETTING)],
        )
    )
    assert observed.touched == (
        Touch("~/.gitconfig", Did.OPENED, DecoyKind.SETTING),
        Touch("~/.ssh/id_ed25519", Did.OPENED, DecoyKind.SECRET),
        Touch("~/Documents", Did.LISTED, None, ("list",)),
        Touch("~/Documents/budget.csv", Did.OPENED, DecoyKind.DOCUMENT, ("list", "read")),
    )
    assert observed.needs == (Need("read", "~/.gitconfig"), Need("read", "~/Documents", ("list", "read")))


def test_hosts_are_told_with_the_tools_that_asked_and_those_of_no_request_too() -> None:
    """A server could wait until nobody asks it for anything, and then call home unseen."""
    said = ("api.example:443 cannot be reached", "/x exists but is hidden")
    search = replace(call("search"), outside=said)
    recording = replace(recorded(search), hosts=("api.example:443", "home.example"))
    assert observe(recording).hosts == (AskedHost("api.example:443", ("search",)), AskedHost("home.example"))


def test_a_folder_that_is_changed_is_needed_once_for_writing() -> None:
    """Two grants of one folder would be proposed, or a home for what the private home keeps."""
    seen = [(Did.OPENED, DOCUMENT), (Did.MADE, "Documents/new.md"), (Did.MADE, ".notes.db"), (Did.REMOVED, KEY)]
    assert observe(recorded(call("save", *seen))).needs == (Need("write", "~/Documents", ("save",)),)


@pytest.mark.parametrize(
    ("marked", "method", "taken"),
    [
        (Marked(DOCUMENT, 1), "tools/call", ""),
        (Marked(DOCUMENT, 1), "resources/read", ""),
        (Marked(SETTING, 1), "tools/call", ""),
        (Marked(DOCUMENT, 1), "tools/list", "the answer to tools/list of t"),
        (Marked(DOCUMENT, 9), "tools/call", "a message that answers no request"),
        (Marked(DOCUMENT), "tools/call", "a message that answers no request"),
        (Marked(DOCUMENT, in_stderr=True), "tools/call", "its stderr"),
        (Marked(KEY, 1), "tools/call", "the answer to tools/call of t"),
        (Marked(KEY, in_stderr=True), "tools/call", "its stderr"),
    ],
)
def test_a_secret_is_taken_wherever_it_is_sent_and_a_document_outside_of_results(
    marked: Marked, method: str, taken: str
) -> None:
    """A notes server would be called a thief, or a thief a notes server."""
    recording = recorded(call("t", method=method), marked=[marked])
    expected = (Taken(f"~/{marked.decoy}", taken),) if taken else ()
    assert observe(recording).taken == expected
    assert findings(recording) == {"decoys-kept": len(expected), "secrets-unopened": 0}


def test_content_that_is_looked_up_as_a_name_is_taken() -> None:
    """A server could pass a key on by DNS, which leaves by a resolver that everybody may ask."""
    mark = next(decoy.mark for decoy in DECOYS if decoy.path == KEY)
    recording = replace(recorded(), hosts=("api.example", f"{mark}.evil.example"))
    assert observe(recording).taken == (Taken(f"~/{KEY}", f"the name {mark}.evil.example that it asked for"),)


def test_an_opened_secret_is_a_finding_and_a_runners_own_settings_are_none() -> None:
    """A server that reads keys would pass, or every package be blamed for its runner."""
    assert findings(recorded(idle=[(Did.OPENED, KEY)], runner=True))["secrets-unopened"] == 1
    assert findings(recorded(idle=[(Did.OPENED, ".npmrc")]))["secrets-unopened"] == 1
    assert findings(recorded(idle=[(Did.OPENED, ".npmrc")], runner=True))["secrets-unopened"] == 0
    assert findings(recorded(call("t", (Did.OPENED, ".npmrc")), runner=True))["secrets-unopened"] == 1
    assert findings(recorded(idle=[(Did.OPENED, DOCUMENT), (Did.LISTED, ".ssh")]))["secrets-unopened"] == 0


def test_what_was_not_watched_or_was_remote_has_no_verdict() -> None:
    """A server would pass because nobody looked."""
    assert list(judge_decoys(Recording((Episode("legacy", "2025-11-25"),)))) == []
    assert list(judge_decoys(Recording((Episode("legacy"),), decoys=DECOYS))) == []
    unwatched = Recording((Episode("legacy", "2025-11-25"),), decoys=DECOYS, unwatched="no inotify")
    assert findings(unwatched) == {"decoys-kept": 0}
    assert observe(unwatched).unwatched == "no inotify"


def test_a_flood_of_names_hides_no_secret() -> None:
    """A server could make 100,000 files so that the key it opened is left out."""
    names = [(Did.MADE, f"Desktop/{at}\n\x1b[31m") for at in range(MAX_TOUCHED * 2)]
    observed = observe(recorded(call("flood", *names, (Did.OPENED, KEY), is_lossy=True)))
    assert len(observed.touched) == MAX_TOUCHED
    assert Touch(f"~/{KEY}", Did.OPENED, DecoyKind.SECRET, ("flood",)) in observed.touched
    assert (observed.more, observed.is_complete) == (MAX_TOUCHED + 1, False)


def test_a_flood_that_the_kernel_dropped_events_of_is_no_pass() -> None:
    """A server could drown the reading of a key in events, and pass."""
    assert "secrets-unopened" not in findings(recorded(call("flood", is_lossy=True)))
    assert findings(recorded(call("flood", (Did.OPENED, KEY), is_lossy=True)))["secrets-unopened"] == 1
