"""What the options of HTTP, of names and of native tools amount to."""

import os
from pathlib import Path

import pytest
from support.command_line import Said

from quarterdeck.cli.exits import CommandError, ExitCode
from quarterdeck.cli.options import ProfileName, http_wish, name_budget, native_options, native_wish
from quarterdeck.common.http_wish import HttpWish
from quarterdeck.common.tool_names import NameBudget, Profile
from quarterdeck.daemon.messages import NativeRequest
from quarterdeck.tools.catalogue import PROFILE_NAMES


def test_the_profiles_are_the_decks_by_plainer_names() -> None:
    """A profile could be asked for that nobody provides, or one not be asked for by the name that embedders know."""
    shown = [ProfileName.READ_ONLY, ProfileName.WORKSPACE, ProfileName.ALL]
    assert [name.in_deck for name in shown] == [str(profile) for profile in Profile]
    assert {name.in_deck for name in ProfileName} == {str(profile) for profile in Profile}
    assert {name.shown for name in ProfileName} == set(shown)
    assert [PROFILE_NAMES[profile] for profile in Profile] == shown


def test_a_profile_alone_works_where_we_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user in a project would have to name it."""
    monkeypatch.chdir(tmp_path)
    assert native_options(ProfileName.ALL, None, None, None) == NativeRequest("all", str(tmp_path.resolve()))


def test_directories_are_real_and_tools_are_names(tmp_path: Path) -> None:
    """A link that is changed later would move the workspace of a running serve."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    found = native_options(
        ProfileName.SURVEY, tmp_path / "link", [tmp_path / "real", tmp_path, tmp_path], " read, ls,,read "
    )
    assert found is not None
    assert found.workspace == f"{tmp_path}/real"
    assert found.allow_dirs == (f"{tmp_path}/real", str(tmp_path))
    assert found.tools == ("read", "ls")


@pytest.mark.parametrize(
    ("command", "arguments", "option"),
    [
        ("serve", ["127.0.0.1:9000"], "HOST:PORT"),
        ("serve", ["--allow-remote"], "--allow-remote"),
        ("serve", ["--no-token"], "--no-token"),
        ("serve", ["--json"], "--json"),
        ("up", ["127.0.0.1:9000"], "HOST:PORT"),
        ("up", ["--allow-host", "deck.example"], "--allow-host"),
    ],
)
def test_what_belongs_to_http_says_nothing_without_it(
    command: str, arguments: list[str], option: str, said: Said
) -> None:
    """A user would believe that clients can come over the network, who cannot."""
    assert f"{option} needs --http" in said(ExitCode.USAGE, command, *arguments).err


def test_the_options_of_http_are_one_wish() -> None:
    """A daemon would listen elsewhere than a serve of the same options."""
    assert http_wish(http=False, address=None, allow_remote=False, allow_host=None) is None
    assert http_wish(http=True, address=None, allow_remote=False, allow_host=None) == HttpWish()
    wish = http_wish(http=True, address="[::1]:1", allow_remote=True, allow_host=["a", "b"])
    assert wish == HttpWish("[::1]:1", allow_remote=True, allow_hosts=("a", "b"))


@pytest.mark.parametrize("command", ["serve", "up"])
def test_an_address_that_is_none_is_refused_before_anything_starts(command: str, said: Said) -> None:
    """Servers would be started for clients that can never come."""
    assert "for example 127.0.0.1:8808" in said(ExitCode.USAGE, command, "--http", "127.0.0.1:port").err


@pytest.mark.parametrize(
    ("arguments", "option"),
    [(["--workspace", "."], "--workspace"), (["--allow-dir", "."], "--allow-dir"), (["--tools", "read"], "--tools")],
)
@pytest.mark.parametrize("command", [["serve"], ["tools"], ["call", "read"]])
def test_what_belongs_to_a_profile_says_nothing_without_one(
    command: list[str], arguments: list[str], option: str, said: Said
) -> None:
    """A user would believe that tools are served, or confined, that are not."""
    err = said(ExitCode.USAGE, *command, "--config", "mcp.json", *arguments).err
    assert f"{option} needs --profile" in err
    assert "add --profile read-only" in err


@pytest.mark.parametrize("option", ["--workspace", "--allow-dir"])
def test_a_directory_that_is_none_is_a_usage_error(tmp_path: Path, option: str, said: Said) -> None:
    """A typing error would show only when an agent first uses a tool."""
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("pipe", "is not a directory"), ("none", "No such file or directory")):
        path = tmp_path / name
        assert f"{option} {path}: {reason}" in said(ExitCode.USAGE, "serve", "--profile", "all", option, path).err


def test_one_file_can_be_allowed_and_is_no_workspace(tmp_path: Path) -> None:
    """Nobody could have an agent change an `.envrc`, which is closed unless it is named."""
    (tmp_path / ".envrc").write_text("")
    found = native_options(ProfileName.ALL, tmp_path, [tmp_path / ".envrc"], None)
    assert found is not None
    assert found.allow_dirs == (str(tmp_path / ".envrc"),)
    with pytest.raises(CommandError, match="is not a directory"):
        native_options(ProfileName.ALL, tmp_path / ".envrc", None, None)


@pytest.mark.parametrize("tools", ["", " , "])
def test_no_tool_at_all_is_a_usage_error(tmp_path: Path, tools: str) -> None:
    """A list that a script left empty would offer everything, or nothing."""
    with pytest.raises(CommandError, match="lists no tools"):
        native_options(ProfileName.ALL, tmp_path, None, tools)


@pytest.mark.parametrize(
    ("profile", "tools", "says"),
    [
        ("all", "read,baash", "did you mean 'bash'?"),
        ("all", "server__tool", "The profile 'all' has read, ls,"),
        ("authoring", "bash", "'bash' is not in the profile 'read-only', but in 'workspace' and 'all'."),
        ("survey", "memory", "'memory' is not in the profile 'workspace', but in 'all'."),
        ("workspace", "memory", "'memory' is not in the profile 'workspace', but in 'all'."),
    ],
)
def test_a_tool_that_the_profile_lacks_is_told_at_the_start(
    tmp_path: Path, profile: str, tools: str, says: str, said: Said
) -> None:
    """An agent would be offered less than its user thinks, without a word."""
    command = ["serve", "--profile", profile, "--workspace", str(tmp_path), "--tools", tools]
    err = said(ExitCode.USAGE, *command).err
    assert "--tools: " in err
    assert says in err


def test_a_wish_is_the_options(tmp_path: Path) -> None:
    """Something else would be served than was asked for, or found."""
    wish = native_wish(NativeRequest("survey", str(tmp_path), ("/tmp",), ("read", "bash")))
    assert (wish.profile, wish.workspace, wish.allow_dirs, wish.tools) == (
        Profile.SURVEY,
        tmp_path,
        (Path("/tmp"),),
        ("read", "bash"),
    )


def test_a_directory_that_is_gone_below_us_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell in a removed directory would give a traceback."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    os.rmdir(gone)
    with pytest.raises(CommandError) as refused:
        native_options(ProfileName.ALL, None, None, None)
    assert refused.value.code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("limit", "prefix", "budget"),
    [
        (None, None, NameBudget(46)),
        (64, None, NameBudget(64)),
        (24, None, NameBudget(24)),
        (128, None, NameBudget(128)),
        (0, None, None),
        (None, "mcp__deck__", NameBudget(53)),
        (None, "", NameBudget(64)),
        (None, "p" * 40, NameBudget(24)),
    ],
)
def test_names_keep_to_what_is_said(limit: int | None, prefix: str | None, budget: NameBudget | None) -> None:
    """A client would refuse names that the user has made room for."""
    assert name_budget(limit, prefix) == budget


@pytest.mark.parametrize(
    ("limit", "prefix", "told"),
    [
        (23, None, "--name-budget: 23 characters are too few"),
        (-1, None, "--name-budget: -1 characters are too few"),
        (None, "p" * 41, "--client-prefix: of 64 characters 41 are its own: 23 characters are too few"),
        (46, "mcp__deck__", "set the same thing in two ways"),
        (0, "", "set the same thing in two ways"),
    ],
)
def test_what_cannot_be_kept_is_a_usage_error(limit: int | None, prefix: str | None, told: str) -> None:
    """It would end in a traceback, or be kept in part without a word."""
    with pytest.raises(CommandError) as refused:
        name_budget(limit, prefix)
    assert refused.value.code == ExitCode.USAGE
    assert told in refused.value.message
    assert refused.value.remedy
