"""Whose private home it is."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.config.places import use_places

from quarterdeck.config.places.kept_state import reserve_server_home
from quarterdeck.config.places.paths import server_paths

DIGEST = "0123456789ab"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_places(monkeypatch, tmp_path)
    return tmp_path / "state"


def left_in(scope: str) -> list[str]:
    """What the server `fs` finds in its home when `scope` configures it."""
    reserve_server_home(DIGEST, "fs", scope)
    home = server_paths(DIGEST, "fs").create().home
    return sorted(path.name for path in home.iterdir())


def leave(name: str) -> None:
    (server_paths(DIGEST, "fs").home / name).touch()


def test_a_home_is_kept_for_the_file_that_configures_its_server() -> None:
    """A package runner would download everything at each start."""
    assert left_in("user") == []
    leave("cache")
    assert left_in("user") == ["cache"]


def test_what_a_projects_server_left_is_not_found_by_the_users() -> None:
    """A cloned repository could leave a program that the user's own server of that name runs, with its keys."""
    assert left_in("/cloned/.mcp.json") == []
    leave("planted")
    assert left_in("user") == []
    leave("mine")
    assert left_in("/cloned/.mcp.json") == ["planted"]
    assert left_in("user") == ["mine"]


def test_starts_in_the_same_instant_have_one_home() -> None:
    """Two windows that open at once would take the server's home away from one another."""
    for _ in range(5):
        shutil.rmtree(server_paths(DIGEST, "fs").home.parent, ignore_errors=True)
        with ThreadPoolExecutor(4) as starts:
            assert list(starts.map(left_in, ["user"] * 4)) == [[]] * 4
        beside = [path.name for path in server_paths(DIGEST, "fs").home.parent.parent.iterdir()]
        assert beside == ["fs"]


def test_a_home_that_nobody_signed_is_nobodys() -> None:
    """What a version without owners left could be anybody's."""
    server_paths(DIGEST, "fs").create()
    leave("old")
    assert left_in("user") == []


FORMER = "ba9876543210"


def test_a_home_from_when_each_configuration_had_one_is_kept() -> None:
    """After an upgrade every package would be downloaded again, and what a server remembered be lost."""
    reserve_server_home(FORMER, "fs", "user")
    (server_paths(FORMER, "fs").create().home / "cache").touch()
    reserve_server_home(DIGEST, "fs", "user", FORMER)
    assert left_in("user") == ["cache"]
    assert not server_paths(FORMER, "fs").home.exists()


def test_a_home_that_was_put_aside_then_is_kept_too() -> None:
    """Whose server shared its name with a project's would lose what it has."""
    reserve_server_home(FORMER, "fs", "user")
    (server_paths(FORMER, "fs").create().home / "cache").touch()
    reserve_server_home(FORMER, "fs", "/cloned/.mcp.json")
    reserve_server_home(DIGEST, "fs", "user", FORMER)
    assert left_in("user") == ["cache"]


@pytest.mark.parametrize("scope", ["/cloned/.mcp.json", "user"])
def test_nobody_is_given_anothers_former_home_or_one_for_his_own(scope: str) -> None:
    """A project's server could leave a program for the user's; or what the user has now be replaced by what was."""
    reserve_server_home(FORMER, "fs", scope)
    (server_paths(FORMER, "fs").create().home / "old").touch()
    if scope == "user":
        assert left_in("user") == []
        leave("mine")
    reserve_server_home(DIGEST, "fs", "user", FORMER)
    assert left_in("user") == (["mine"] if scope == "user" else [])
    assert (server_paths(FORMER, "fs").home / "old").exists()
