"""What decks are called, and whose a name stays."""

from pathlib import Path

import pytest

from quarterdeck.daemon import deck_names
from quarterdeck.daemon.deck_names import DeckNames, DeckNamesError, KnownDecks, base_name, identity_of
from quarterdeck.daemon.messages import NativeRequest, ServeRequest


def found(cwd: str) -> ServeRequest:
    return ServeRequest(cwd=cwd)


def named(*config: str) -> ServeRequest:
    return ServeRequest(cwd="/", config=config)


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (found("/home/ada/Weather App"), "weather-app"),
        (found("/home/ada/Überblick_2"), "uberblick-2"),
        (found("/"), "deck"),
        (found("/home/ada/日本"), "deck"),
        (named("/home/ada/api/mcp.json"), "api"),
        (named("/home/ada/api/.vscode/mcp.json"), "api"),
        (named("/home/ada/api/.mcp.json"), "api"),
        (named("/home/ada/tools.json", "/b.json"), "tools"),
        (ServeRequest(cwd="/x", native=NativeRequest("all", "/home/ada/site")), "site"),
        (found("/home/ada/" + "x" * 60), "x" * 40),
    ],
)
def test_a_deck_is_called_as_its_project_or_its_file(request_: ServeRequest, name: str) -> None:
    """People could not tell which deck is which; or a client's URL would need escapes."""
    assert base_name(request_) == name


def test_of_two_with_one_name_the_later_has_digits_of_its_own(tmp_path: Path) -> None:
    """A token for one project would open another that is called so, too, or one the other after a restart."""
    path = tmp_path / "decks.json"
    one, two = found("/a/api"), found("/b/api")
    names = DeckNames(path)
    assert names.name(one, one) == "api"
    second = names.name(two, two)
    assert second == f"api-{identity_of(two)[:4]}"
    again = DeckNames(path)
    assert [again.name(each, each) for each in (two, one)] == [second, "api"]
    assert again.find(second) == two
    assert (again.called(one), again.called(found("/c/api")), again.find("c")) == ("api", "", None)
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_users_own_deck_has_a_name_that_no_project_gets(tmp_path: Path) -> None:
    """A project's folder that is called so would be served to every client without a deck of its own."""
    names = DeckNames(tmp_path / "decks.json")
    own = names.find("user")
    assert own is not None
    assert names.name(own, own) == "user"
    project = found("/home/user")
    assert names.name(project, project).startswith("user-")


def test_a_name_that_a_token_has_is_kept_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token would open whatever project gets the name next; or the file would grow for ever."""
    monkeypatch.setattr(deck_names, "MAX_KNOWN", 2)
    known = KnownDecks()
    for number, folder in enumerate(("/a", "/b", "/c", "/d")):
        known = known.used(identity_of(found(folder)), found(folder), float(number), {"a"})
    assert [each.name for each in known.decks] == ["a", "d"]
    full = known.used(identity_of(found("/e")), found("/e"), 9.0, {"a", "d"})
    assert full is known


def test_what_a_later_version_may_be_asked_for_changes_no_identity() -> None:
    """An upgrade would give each deck another name, and its tokens would open nothing."""
    assert identity_of(found("/a/api")) == "e0a5a0e41543caa7"


def test_a_file_of_names_that_cannot_be_used_is_an_error_that_names_it(tmp_path: Path) -> None:
    """Names would be given anew, to others."""
    path = tmp_path / "decks.json"
    path.write_text("{}x")
    path.chmod(0o600)
    one = found("/a")
    with pytest.raises(DeckNamesError, match=r"decks\.json is not a file of decks' names"):
        DeckNames(path).name(one, one)
