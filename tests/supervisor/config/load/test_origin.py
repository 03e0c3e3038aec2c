"""Where a row is from."""

from pathlib import Path

from quarterdeck.config.load.origin import FROM_CODE, Origin, Standing, candidates, candidates_digest


def test_what_an_origin_shows_holds_no_secret() -> None:
    """Asking for approval would print a password."""
    origin = Origin(Path("mcp.json"), "mcpServers.a", Standing.PROJECT, {"command": "c", "env": {"A": "s3cret"}})
    assert "s3cret" not in f"{origin.shown}{origin!r}"
    assert origin.shown["command"] == "c"


def test_what_no_file_says_is_the_programs_word() -> None:
    """An embedding program's own server would wait for an approval that nobody gives."""
    assert (FROM_CODE.standing, FROM_CODE.path) == (Standing.CODE, None)


def test_the_places_and_their_order(tmp_path: Path) -> None:
    """A file would not be found, or one that somebody else put there be taken for the user's."""
    found = candidates(tmp_path, {"HOME": "/home/u"})
    assert [(str(each.path), each.standing) for each in found] == [
        (f"{tmp_path.resolve()}/.indusvx/mcp.json", Standing.PROJECT),
        ("/home/u/.config/quarterdeck/mcp.json", Standing.USER),
        ("/home/u/.config/indusvx/mcp.json", Standing.USER),
        ("/home/u/.indusvx/agent/mcp.json", Standing.USER),
        ("/home/u/.indusvx/agent/mcp-servers.json", Standing.USER),
        (f"{tmp_path.resolve()}/quarterdeck.json", Standing.PROJECT),
        (f"{tmp_path.resolve()}/.mcp.json", Standing.PROJECT),
    ]
    moved = candidates(tmp_path, {"HOME": "/home/u", "XDG_CONFIG_HOME": "/cfg"})
    assert str(moved[1].path) == "/cfg/quarterdeck/mcp.json"


def test_the_digest_names_the_place_and_not_what_is_there(tmp_path: Path) -> None:
    """`ps` would lose the serve as soon as a project's file appears, be it a link."""

    def digest(cwd: Path) -> str:
        return candidates_digest(each.path for each in candidates(cwd, {"HOME": str(tmp_path / "home")}))

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to("a")
    before = digest(tmp_path / "a")
    (tmp_path / "b/mine.json").write_text("{}")
    (tmp_path / "a/.mcp.json").symlink_to(tmp_path / "b/mine.json")
    (tmp_path / "a/.indusvx").symlink_to(tmp_path / "b")
    assert digest(tmp_path / "a") == before == digest(tmp_path / "link")
    assert digest(tmp_path / "b") != before
