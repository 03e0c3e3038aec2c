"""`quarterdeck token create`, `list` and `revoke`."""

from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from support.command_line import Said
from support.config.places import write_config, write_document

from quarterdeck.host.http.admission import Scope
from quarterdeck.host.http.token_file import TOKENS_NAME, load_grants


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of the test's own, not there yet."""
    state = tmp_path / "state"
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(state))
    return state


def test_a_token_is_printed_once_and_listed_without_itself(state: Path, said: Said) -> None:
    """A script could not take it from stdout; or the list would give every client's away."""
    limits = ("--server", "fs", "--tool", "fs__*", "--profile", "read-only", "--rate", "20/s", "--expires", "30d")
    out, err = said(0, "token", "create", "ci", *limits)
    token = out.strip()
    assert "shown once" in err
    assert token.startswith("qd_")
    out, _ = said(0, "token", "list")
    assert token not in out
    assert out.splitlines()[1].split()[:9] == ["ci", "live", "user", "fs", "fs__*", "-", "-", "read-only", "20/s"]
    [row] = said.json(0, "token", "list", "--json")
    assert (row["name"], row["state"], row["servers"], row["tools"]) == ("ci", "live", ["fs"], ["fs__*"])
    assert (row["profile"], row["rate"], row["revoked_at"]) == ("read-only", "20/s", None)
    assert row["expires_at"] > row["created_at"]
    assert load_grants(state / "tokens.json").find(token) is not None
    assert state.stat().st_mode & 0o777 == 0o700


DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("words", "lifetime", "told"),
    [
        ((), 90 * DAY, "`--expires never`"),
        (("--json",), 90 * DAY, ""),
        (("--expires", "2w"), 14 * DAY, "shown once"),
        (("--expires", "never"), None, "shown once"),
    ],
)
def test_a_token_ends_after_90_days_unless_told_otherwise(
    said: Said, words: tuple[str, ...], lifetime: timedelta | None, told: str
) -> None:
    """A token that is forgotten would open everything for ever; or a script be stopped by a question."""
    out, err = said(0, "token", "create", "ci", *words)
    assert told in err
    assert out.count("\n") == 1
    [row] = said.json(0, "token", "list", "--json")
    assert expiry(row) == lifetime


@pytest.mark.parametrize(("typed", "lifetime"), [("\n", 90 * DAY), ("12h\n", DAY / 2), ("never\n", None)])
def test_a_person_is_asked_for_how_long(
    said: Said, monkeypatch: pytest.MonkeyPatch, typed: str, lifetime: timedelta | None
) -> None:
    """A user would not come to know that a token ends, or how to say when."""
    terminal = StringIO(typed)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    out, err = said(0, "token", "create", "ci")
    assert "For how long (12h, 30d, 4w, never)?" in err
    assert out.startswith("qd_")
    [row] = said.json(0, "token", "list", "--json")
    assert expiry(row) == lifetime


def expiry(row: dict[str, str]) -> timedelta | None:
    """The lifetime of a token as `token list --json` shows it."""
    made, end = (datetime.fromisoformat(row[key]) if row[key] else None for key in ("created_at", "expires_at"))
    return end - made if made is not None and end is not None else None


def test_a_token_may_show_two_tools_in_place_of_all(state: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could tell which token does; or it would be found out by a model that nothing can be searched here."""
    token = said(0, "token", "create", "ci", "--search")[0].strip()
    said(0, "token", "create", "plain")
    assert [row["search"] for row in said.json(0, "token", "list", "--json")] == [True, False]
    assert [row.split()[6] for row in said(0, "token", "list")[0].splitlines()[1:]] == ["yes", "-"]
    found = load_grants(state / "tokens.json").find(token)
    assert found is not None
    assert found.client.is_searched
    monkeypatch.setattr("quarterdeck.host.search.index.missing_reason", lambda: "no FTS5")
    assert "--search cannot rank tools: no FTS5" in said(2, "token", "create", "other", "--search")[1]


def test_a_token_that_is_revoked_is_listed_as_that(said: Said) -> None:
    """Nobody could see whether it took effect, or make one of that name again."""
    first = said.json(0, "token", "create", "ci", "--json")["token"]
    assert "is revoked" in said(0, "token", "revoke", "ci")[0]
    assert said.json(0, "token", "create", "ci", "--json")["token"] != first
    states = [row["state"] for row in said.json(0, "token", "list", "--json")]
    assert states == ["revoked", "live"]


def test_what_is_not_there_is_not_revoked(state: Path, said: Said) -> None:
    """A typo would leave the token that was meant open, without a word."""
    assert "there is no token 'ci'" in said(3, "token", "revoke", "ci")[1]
    said(0, "token", "create", "ci")
    said(0, "token", "revoke", "ci")
    assert "there is no token 'ci'" in said(3, "token", "revoke", "ci")[1]
    assert "there are no tokens" not in said(0, "token", "list")[1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("a b",), "cannot be a token's name"),
        (("owner",), "token of quarterdeck token show"),
        (("ci", "--rate", "often"), "'often' is not a rate"),
        (("ci", "--expires", "nevr"), "'nevr' is not a span of time"),
        (("ci", "--tool", ""), "is not a pattern"),
    ],
)
def test_what_cannot_be_meant_makes_no_token(state: Path, said: Said, words: tuple[str, ...], says: str) -> None:
    """A token would be made that allows more than its maker thinks."""
    out, err = said(2, "token", "create", *words)
    assert out == ""
    assert says in err
    assert not (state / "tokens.json").exists()


def test_a_name_is_one_tokens(said: Said) -> None:
    """The ledger could not tell whose call it was."""
    said(0, "token", "create", "ci")
    out, err = said(2, "token", "create", "ci")
    assert out == ""
    assert "there is a token called 'ci'" in err
    assert "quarterdeck token revoke ci" in err


def test_a_damaged_file_is_told_and_kept(state: Path, said: Said) -> None:
    """What was revoked would open again after the next command."""
    state.mkdir(mode=0o700)
    (state / "tokens.json").write_text("{")
    (state / "tokens.json").chmod(0o600)
    for words in (("create", "x"), ("list",), ("revoke", "x")):
        assert "tokens.json is not a file of tokens" in said(2, "token", *words)[1]
    assert (state / "tokens.json").read_text() == "{"


def test_a_token_is_bound_to_decks_by_folder_and_by_name(tmp_path: Path, said: Said) -> None:
    """A program that works on one project could use every other; or a typo give it what comes to be called so."""
    folder, file = tmp_path / "api", tmp_path / "tools.json"
    folder.mkdir()
    file.write_text("{}")
    write_config(folder / ".mcp.json")
    _, err = said(2, "token", "create", "ci", "--deck", "api")
    assert "there is no deck 'api'" in err
    said(0, "token", "create", "ci", "--deck", f"{folder}/", "--deck", file)
    said(0, "token", "create", "other", "--deck", "api", "--deck", "user")
    rows = said.json(0, "token", "list", "--json")
    assert [row["decks"] for row in rows] == [["api", "tools"], ["api", "user"]]
    _, err = said(2, "token", "create", "third", "--deck", f"{folder}/nothing")
    assert "is neither a folder nor a file" in err


def test_a_group_that_its_deck_does_not_have_is_told_with_those_that_it_has(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A typo would make a token that shows its client nothing, without a word."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / ".config"))
    groups = {"review": {"servers": ["fs"]}, "write": {"servers": ["fs"]}}
    rows = {"fs": {"command": "fs"}}
    write_document(tmp_path / "home" / ".config" / "quarterdeck" / "mcp.json", mcpServers=rows, groups=groups)
    api = write_document(tmp_path / "api.json", mcpServers=rows)
    out, err = said(0, "token", "create", "ci", "--group", "nope", "--group", "review")
    assert out.startswith("qd_")
    assert "the deck user has no group 'nope', and its groups are review, write" in err
    assert "'review'" not in err
    _, err = said(0, "token", "create", "other", "--group", "review", "--deck", api)
    assert "the deck api has no group 'review', and it has none" in err
    assert "no group" not in said(0, "token", "create", "third", "--group", "review")[1]


def test_a_folder_without_a_configuration_is_no_deck(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that opens nothing would be found out by its program; or a typo in a path open the user's own servers."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / ".config"))
    folder = tmp_path / "api"
    folder.mkdir()
    _, err = said(2, "token", "create", "ci", "--deck", f"{folder}/")
    assert f"{folder} has no configuration: neither quarterdeck.json or .mcp.json, nor a file of your own" in err
    assert "fix: name a project's folder, or write one of the files" in err
    assert said(0, "token", "list", "--json")[0].strip() == "[]"
    write_config(tmp_path / "home" / ".config" / "quarterdeck" / "mcp.json")
    _, err = said(0, "token", "create", "ci", "--deck", f"{folder}/")
    assert f"{folder} has no quarterdeck.json or .mcp.json: its deck has your own servers alone" in err
    write_config(folder / ".mcp.json")
    _, err = said(0, "token", "create", "other", "--deck", f"{folder}/")
    assert "your own servers" not in err


def test_a_token_with_a_scope_is_for_no_server(state: Path, said: Said) -> None:
    """Somebody would believe that it is limited to a server's metrics, or that it opens that server."""
    said(0, "token", "create", "prom", "--scope", "metrics", "--expires", "never")
    said(2, "token", "create", "other", "--scope", "read", "--server", "fs")
    out, _ = said(0, "token", "list")
    told = out.splitlines()[1].split()
    assert (told[2:5], told[-1]) == (["none", "none", "none"], "metrics")
    [grant] = load_grants(state / TOKENS_NAME).grants
    assert grant.scope is Scope.METRICS
