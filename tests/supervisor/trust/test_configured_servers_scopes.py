"""How the ledger names what configures a server."""

import os
from pathlib import Path

import pytest

from quarterdeck.config.load.origin import Origin, Standing
from quarterdeck.trust.configured_servers import covered_scopes, scope_of, scope_of_row
from quarterdeck.trust.judge.server_rows import PROGRAM_SCOPE, USER_SCOPE


def test_a_file_has_one_scope_from_wherever_it_is_named(tmp_path: Path) -> None:
    """Approvals would be lost, or asked for anew, from another directory."""
    path = tmp_path / "deck.json"
    assert scope_of(tmp_path / "x" / ".." / "deck.json") == scope_of(path) == str(path)
    assert scope_of(Path(os.path.relpath(path))) == scope_of(path)


def test_a_link_lends_no_approval(tmp_path: Path) -> None:
    """A project could link to the user's file, and tomorrow to another, under what was approved of the first."""
    path, link = tmp_path / "deck.json", tmp_path / "link.json"
    path.touch()
    link.symlink_to(path)
    assert scope_of(link) != scope_of(path)


def test_a_name_that_is_no_text_has_a_scope_all_the_same(tmp_path: Path) -> None:
    """A directory with an odd name would stop every start in it."""
    scope = scope_of(tmp_path / os.fsdecode(b"caf\xe9") / "deck.json")
    assert scope.encode().decode() == scope
    assert scope != scope_of(tmp_path / os.fsdecode(b"caf\xea") / "deck.json")


@pytest.mark.parametrize(
    ("standing", "scope"),
    [(Standing.USER, USER_SCOPE), (Standing.NAMED, "/a/deck.json"), (Standing.PROJECT, "/a/deck.json")],
)
def test_the_users_files_are_one_and_every_other_stands_for_itself(standing: Standing, scope: str) -> None:
    """A server would lose its approvals when its row moves between the user's files, or share them with a project's."""
    assert scope_of_row(Origin(Path("/a/deck.json"), "fs", standing, {})) == scope


def test_no_file_is_the_program() -> None:
    """Servers of an embedding program would be those of some file, or a file be able to pass for it."""
    assert scope_of(None) == scope_of_row(None) == PROGRAM_SCOPE
    assert scope_of_row(Origin(None, "", Standing.CODE, {})) == PROGRAM_SCOPE
    assert scope_of(Path(PROGRAM_SCOPE)) != PROGRAM_SCOPE
    assert scope_of(Path(USER_SCOPE)) != USER_SCOPE


def test_found_files_cover_the_users_and_named_ones_do_not() -> None:
    """A server of the user's would be taken for gone when another file is named on the command line."""
    paths = [Path("/a/deck.json"), Path("/b/deck.json")]
    assert covered_scopes(paths, is_found=False) == {"/a/deck.json", "/b/deck.json"}
    assert covered_scopes(paths, is_found=True) == {"/a/deck.json", "/b/deck.json", USER_SCOPE}
