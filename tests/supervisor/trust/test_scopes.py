"""How the ledger names the file that configures a server."""

import os
from pathlib import Path

from quarterdeck.trust.scopes import PROGRAM_SCOPE, scope_of


def test_a_file_has_one_scope_by_whatever_name_it_is_reached(tmp_path: Path) -> None:
    """Approvals would be lost, or asked for anew, from another directory or through a link."""
    path = tmp_path / "deck.json"
    path.touch()
    link = tmp_path / "link.json"
    link.symlink_to(path)
    assert scope_of(link) == scope_of(tmp_path / "x" / ".." / "deck.json") == scope_of(path) == str(path.resolve())
    assert scope_of(Path(os.path.relpath(path))) == scope_of(path)


def test_a_name_that_is_no_text_has_a_scope_all_the_same(tmp_path: Path) -> None:
    """A directory with an odd name would stop every start in it."""
    scope = scope_of(tmp_path / os.fsdecode(b"caf\xe9") / "deck.json")
    assert scope.encode().decode() == scope
    assert scope != scope_of(tmp_path / os.fsdecode(b"caf\xea") / "deck.json")


def test_no_file_is_the_program() -> None:
    """Servers of an embedding program would be those of some file."""
    assert scope_of(None) == PROGRAM_SCOPE
    assert "/" not in PROGRAM_SCOPE
