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
