"""What a session has in one process alone, and what the next process says of it."""

from quarterdeck.tools.session_notes import MAX_NAME_CHARS, MAX_NAMES, SessionNotes


def test_what_is_gone_is_said_once_and_by_name() -> None:
    """A model would poll a process that nobody has, or believe that its list is empty."""
    kept: list[bytes] = []
    first = SessionNotes(kept.append)
    first.note("job processes", ["job-1 (npm run dev)", "job-2 (make)"])
    first.note("the checklist of todo_set", ["(3 items)"])
    first.note("job processes", ["job-1 (npm run dev)"])
    assert (first.lost, first.take_lost()) == ("", "")

    after = SessionNotes(kept.append, kept[-1])
    assert after.lost == "job processes (1), the checklist of todo_set (1)"
    said = after.take_lost()
    assert said.endswith("Lost with it: job processes job-1 (npm run dev); the checklist of todo_set (3 items).")
    assert (after.take_lost(), after.lost) == ("", "")
    assert SessionNotes(kept.append, kept[-1]).take_lost() == ""


def test_what_was_not_said_yet_outlives_the_next_death_too() -> None:
    """Nobody would ever be told, where a second daemon died before the model called a tool."""
    kept: list[bytes] = []
    SessionNotes(kept.append).note("job processes", ["job-1 (a)"])
    SessionNotes(kept.append, kept[-1]).note("the checklist of todo", ["(1 item)"])
    said = SessionNotes(kept.append, kept[-1]).take_lost()
    assert "job-1 (a)" in said
    assert "(1 item)" in said


def test_what_ended_by_itself_is_not_lost() -> None:
    """A model would look for a build that had succeeded."""
    kept: list[bytes] = []
    notes = SessionNotes(kept.append)
    notes.note("job processes", [])
    assert kept == []
    notes.note("job processes", ["job-1 (a)"])
    notes.note("job processes", [])
    assert SessionNotes(kept.append, kept[-1]).take_lost() == ""


def test_notes_are_bounded_and_unreadable_ones_are_none() -> None:
    """One long command line would push out all other notes."""
    kept: list[bytes] = []
    SessionNotes(kept.append).note("k", ["x" * 10_000 + "\n y"] * 1000)
    assert len(kept[-1]) < (MAX_NAME_CHARS + 10) * MAX_NAMES
    assert "…" in SessionNotes(kept.append, kept[-1]).take_lost()
    assert SessionNotes(kept.append, b"{").take_lost() == ""
