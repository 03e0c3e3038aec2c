"""Where a row is from."""

from pathlib import Path

from quarterdeck.config.load.origin import FROM_CODE, Origin, Standing


def test_what_an_origin_shows_holds_no_secret() -> None:
    """Asking for approval would print a password."""
    origin = Origin(Path("mcp.json"), "mcpServers.a", Standing.PROJECT, {"command": "c", "env": {"A": "s3cret"}})
    assert "s3cret" not in f"{origin.shown}{origin!r}"
    assert origin.shown["command"] == "c"


def test_what_no_file_says_is_the_programs_word() -> None:
    """An embedding program's own server would wait for an approval that nobody gives."""
    assert (FROM_CODE.standing, FROM_CODE.path) == (Standing.CODE, None)
