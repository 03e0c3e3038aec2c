"""Undoing from the command line."""

from pathlib import Path

import anyio
import pytest
from support.command_line import Said

from quarterdeck.cli.program import run
from quarterdeck.config.places.paths import workspace_paths
from quarterdeck.tools.checkpoint.store import FileCheckpointStore

FIRST, SECOND = "01KAM0000000000000000000A0", "01KAM0000000000000000000B0"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(state))
    work = tmp_path.resolve() / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def change(work: Path, session: str, path: Path, content: str) -> None:
    async def keep() -> None:
        store = FileCheckpointStore(workspace_paths(work).session(session).checkpoints)
        store.begin_node("write")
        await store.record(str(path), before)

    before = path.read_bytes() if path.exists() else None
    anyio.run(keep)
    path.write_text(content)


def test_changes_are_listed_by_session_and_undone(work: Path, said: Said) -> None:
    """A user could not find, or not undo, what an agent did."""
    (work / "a").write_text("original")
    change(work, FIRST, work / "a", "one")
    change(work, SECOND, work / "a", "two")
    change(work, SECOND, work / "b", "new")
    lines = [line.split() for line in said(0, "checkpoint", "list").out.splitlines()]
    assert [(line[0], line[1], line[-1]) for line in lines[1:]] == [
        (FIRST, "0001-write", str(work / "a")),
        (SECOND, "0001-write", str(work / "a")),
        (SECOND, "0002-write", str(work / "b")),
    ]
    out, err = said(0, "checkpoint", "restore", "0001-write", "--session", SECOND)
    assert out.splitlines() == [f"deleted {work / 'b'}", f"restored {work / 'a'}"]
    assert SECOND in err
    assert (work / "a").read_text() == "one"
    assert not (work / "b").exists()
    assert run(["checkpoint", "restore", "0001-write", "--session", FIRST]) == 0
    assert (work / "a").read_text() == "original"


def test_programs_are_told_in_json(work: Path, said: Said, tmp_path: Path) -> None:
    """A script would have to read a table."""
    change(work, FIRST, work / "a", "one")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert said.json(0, "checkpoint", "list", "--json", "--workspace", elsewhere) == []
    [node] = said.json(0, "checkpoint", "list", "--json")
    assert node.pop("at").endswith("Z")
    assert node == {"session": FIRST, "node": "0001-write", "paths": [str(work / "a")]}
    assert said.json(0, "checkpoint", "restore", "0001-write", "--json", "--workspace", work) == {
        "session": FIRST,
        "node": "0001-write",
        "files": [{"path": str(work / "a"), "outcome": "deleted", "note": ""}],
    }


def test_a_file_that_could_not_be_restored_is_an_exit_code(work: Path, said: Said, tmp_path: Path) -> None:
    """A script would go on as if all were undone; and nothing outside the workspace may change unasked."""
    outside = tmp_path.resolve() / "outside"
    outside.mkdir()
    change(work, FIRST, outside / "a", "one")
    assert f"failed {outside / 'a'}: " in said(1, "checkpoint", "restore", "0001-write").out
    assert (outside / "a").exists()
    assert run(["checkpoint", "restore", "0001-write", "--allow-dir", str(outside)]) == 0
    assert not (outside / "a").exists()


@pytest.mark.parametrize("name", ["mcp.json", ".git/hooks/pre-commit"])
def test_what_is_believed_is_not_brought_back(
    work: Path, said: Said, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What an agent wrote before a file counted would be configuration, or a hook, by an undo."""
    monkeypatch.setenv("QUARTERDECK_CONFIG", str(work / "mcp.json"))
    (work / name).parent.mkdir(parents=True, exist_ok=True)
    (work / name).write_text("an agent's")
    change(work, FIRST, work / name, "the user's")
    assert f"failed {work / name}: " in said(1, "checkpoint", "restore", "0001-write").out
    assert (work / name).read_text() == "the user's"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["restore", "0001-write"], 3, "there is nothing to undo"),
        (["list", "--session", FIRST], 3, f"has no session '{FIRST}'"),
        (["list", "--workspace", "missing"], 2, "is not a directory"),
    ],
)
def test_what_is_not_there_is_said(work: Path, said: Said, arguments: list[str], code: int, says: str) -> None:
    """A user would see a traceback, or nothing."""
    out, err = said(code, "checkpoint", *arguments)
    assert out == ""
    assert says in err


def test_a_change_is_undone_in_the_one_session_that_has_it_and_never_by_guess(work: Path, said: Said) -> None:
    """A user would undo another change than the one that the list showed."""
    for content in ("one", "two"):
        change(work, FIRST, work / "a", content)
    change(work, SECOND, work / "b", "three")
    assert f"name one with --session: {FIRST}, {SECOND}" in said(2, "checkpoint", "restore", "0001-write").err
    assert "checkpoint list" in said(3, "checkpoint", "restore", "0007-write").err
    assert ((work / "a").read_text(), (work / "b").read_text()) == ("two", "three")
    assert run(["checkpoint", "restore", "0002-write"]) == 0
    assert ((work / "a").read_text(), (work / "b").read_text()) == ("one", "three")


def test_a_store_that_others_may_change_is_refused(work: Path, said: Said) -> None:
    """Somebody else could choose what a file comes back as."""
    change(work, FIRST, work / "a", "one")
    workspace_paths(work).session(FIRST).checkpoints.chmod(0o777)
    for command in (["list"], ["restore", "0001-write"]):
        assert "chmod 700" in said(2, "checkpoint", *command).err
