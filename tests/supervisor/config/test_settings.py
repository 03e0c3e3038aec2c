"""What to run when nobody names a file: the user's servers, and a project's within its bounds."""

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.config.places import use_places, write_document

from quarterdeck.common.tool_names import Profile
from quarterdeck.config.load.file import ConfigFileError
from quarterdeck.config.load.origin import FROM_CODE, Standing
from quarterdeck.config.native_tools import NativeWish
from quarterdeck.config.settings import Settings, load_mcp_config
from quarterdeck_protocol.configs import SseServerConfig, StdioServerConfig, TrustMode


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_places(monkeypatch, tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    return tmp_path / "home"


def project(home: Path) -> Path:
    return home.parent.resolve() / "project"


def user_file(home: Path, **document: object) -> Path:
    return write_document(home / ".config/quarterdeck/mcp.json", **document)


def discover(home: Path, native: NativeWish | None = None, **environ: str) -> Settings:
    return Settings.discover(project(home), {"HOME": str(home), **environ}, native=native)


def commands(settings: Settings) -> Mapping[str, str]:
    return {config.id: config.command for config in settings.servers if isinstance(config, StdioServerConfig)}


def rows(**servers: str) -> dict[str, object]:
    return {name: {"command": command} for name, command in servers.items()}


def test_an_earlier_place_wins_and_the_user_over_the_project(home: Path) -> None:
    """A repository would replace a server that the user trusts by one of its own."""
    own = user_file(home, servers=rows(a="user", b="user"))
    write_document(home / ".indusvx/agent/mcp.json", servers=rows(b="old", c="old"))
    first = write_document(project(home) / ".indusvx/mcp.json", mcpServers=rows(a="first", d="first"))
    write_document(project(home) / "quarterdeck.json", servers=rows(d="second", e="second"))
    last = write_document(project(home) / ".mcp.json", mcpServers=rows(e="last", f="last", c="last"))
    settings = discover(home)
    assert commands(settings) == {"d": "first", "a": "user", "b": "user", "c": "old", "e": "second", "f": "last"}
    assert [(server, settings.origin(server).standing) for server in "adf"] == [
        ("a", Standing.USER),
        ("d", Standing.PROJECT),
        ("f", Standing.PROJECT),
    ]
    assert settings.origin("f").path == last
    assert f"{first}: 'a' is ignored: {own} defines it, and a project's file may not" in settings.warnings
    assert settings.config_paths[0] == first
    assert len(settings.config_paths) == 5


@pytest.mark.parametrize("row", [{"command": "c", "disabled": True}, {"comand": "c"}, None])
def test_a_name_of_the_users_stays_theirs_when_its_server_does_not_run(home: Path, row: object) -> None:
    """A project would step into the place of a server that the user switched off, or misspelt."""
    user_file(home, servers={"a": row})
    write_document(project(home) / ".mcp.json", mcpServers=rows(a="project", b="project"))
    assert commands(discover(home)) == {"b": "project"}


def test_a_file_that_cannot_be_used_is_passed_over_with_a_warning(home: Path) -> None:
    """One bad file would sink every session in that directory."""
    user_file(home, servers=rows(a="user"))
    (project(home) / ".mcp.json").write_text("{")
    settings = discover(home)
    assert commands(settings) == {"a": "user"}
    assert len(settings.warnings) == 1
    assert settings.warnings[0].startswith(f"skipped: {project(home)}/.mcp.json: ")


def test_a_users_file_that_breaks_for_a_second_takes_no_projects_row_along(home: Path) -> None:
    """An editor that empties a file first would stop the servers of every project."""
    path = user_file(home, servers=rows(a="user"))
    write_document(project(home) / ".mcp.json", mcpServers=rows(b="project"))
    before = discover(home)
    path.write_text("")
    environ = {"HOME": str(home)}
    now = Settings.discover(project(home), environ, before=before)
    assert commands(now) == {"a": "user", "b": "project"}
    assert (now.unread, [each.meanwhile for each in now.troubles]) == ((), ["it counts as it was before"])
    user_file(home, servers=rows(a="mended"))
    again = Settings.discover(project(home), environ, before=now)
    assert (commands(again), again.troubles) == ({"a": "mended", "b": "project"}, ())


def test_a_projects_row_that_the_user_takes_something_from_keeps_nothing(home: Path) -> None:
    """A project would go on with a variable that its user withdrew."""
    user_file(home, allow_project_env=["QD_TOKEN"], servers={})
    written = {"b": {"command": "${QD_TOKEN}"}, "c": {"command": "c"}}
    write_document(project(home) / ".mcp.json", mcpServers=written)
    before = discover(home, QD_TOKEN="run")
    assert commands(before) == {"b": "run", "c": "c"}
    user_file(home, servers={})
    now = Settings.discover(project(home), {"HOME": str(home), "QD_TOKEN": "run"}, before=before)
    assert (commands(now), [row.id for row in now.broken]) == ({"c": "c"}, ["b"])


def test_native_tools_go_on_with_what_their_key_said_while_it_was_right(home: Path) -> None:
    """A typo beside the rows would keep every edit of them out, or let commands run under another sandbox."""
    path = user_file(home, servers=rows(a="one"), native={"sandbox": {"network": "none"}})
    wish = NativeWish(profile=Profile.ALL, workspace=project(home))
    before = Settings.load([path], {}, native=wish)
    user_file(home, servers=rows(a="two"), native={"sandbox": {"netwrk": "none"}})
    now = Settings.load([path], {}, native=wish, before=before)
    assert commands(now) == {"a": "two"}
    assert now.native == before.native
    assert "netwrk" in now.troubles[0].message


def test_nothing_is_a_configuration_too(home: Path) -> None:
    """A fresh machine could not start."""
    settings = discover(home)
    assert (settings.ids, settings.config_paths, len(settings.candidates)) == ((), (), 7)


def test_the_name_of_the_configuration_stays_whatever_appears_or_vanishes(home: Path) -> None:
    """Servers would lose their homes, and commands the serve, when a project gets a file."""
    before = discover(home)
    write_document(project(home) / ".mcp.json", mcpServers=rows(a="project"))
    user_file(home, servers=rows(b="user"))
    after = discover(home)
    assert before.digest == after.digest
    assert before.candidates == after.candidates
    other = Settings.discover(home.parent, {"HOME": str(home)})
    assert other.digest != after.digest
    assert Settings.load(after.config_paths, {}).digest != after.digest


def test_the_users_files_say_what_projects_may_use(home: Path) -> None:
    """A variable would be open to every repository, or to none."""
    user_file(home, allow_project_env=["REGION"])
    write_document(home / ".indusvx/agent/mcp.json", servers={}, allow_project_env=["ZONE"])
    row = {"command": "${REGION}", "args": ["${ZONE:-z}", "${TOKEN:-t}"]}
    write_document(project(home) / ".mcp.json", mcpServers={"a": row, "b": {"command": "${TOKEN}"}})
    settings = discover(home, REGION="r", ZONE="zone", TOKEN="s3cret")
    assert [
        (config.id, getattr(config, "command", ""), getattr(config, "args", ())) for config in settings.servers
    ] == [("a", "r", ("zone", "t"))]
    assert [(row.id, row.code) for row in settings.broken] == [("b", "unset_variable")]
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize("content", ['{"trust": "strict"}', '{"trust": "strct"}'])
def test_a_strict_user_is_strict_with_projects(home: Path, content: str) -> None:
    """Who wants to approve every tool would not be asked for a repository's, or not after a typing error."""
    user_file(home).write_text(content)
    write_document(project(home) / ".mcp.json", mcpServers=rows(a="project"))
    [config] = discover(home).servers
    assert config.trust is TrustMode.STRICT


def test_nothing_of_a_project_counts_while_a_users_file_cannot_be_read(home: Path) -> None:
    """A forgotten comma would give the user's own server's name to a repository's."""
    user_file(home).write_text('{"mcpServers": {"a": {"command": "mine"},}')
    write_document(project(home) / ".mcp.json", mcpServers=rows(a="project"))
    settings = discover(home)
    assert settings.servers == ()
    assert len(settings.unread) == 1
    assert any("is ignored until" in warning for warning in settings.warnings)


def test_a_project_in_the_home_directory_reaches_nothing_of_it(home: Path) -> None:
    """A file that something left in the home directory would open all of it."""
    row = {"command": "c", "sandbox": {"read": ["."]}}
    write_document(home / ".mcp.json", mcpServers={"a": row})
    settings = Settings.discover(home, {"HOME": str(home)})
    assert settings.servers == ()
    assert "sandbox.read[0]" in settings.broken[0].message


def test_only_the_users_files_speak_of_native_tools(home: Path) -> None:
    """A repository would open the network to commands of the user's agent."""
    user_file(home, native={"sandbox": {"network": "none"}})
    write_document(
        project(home) / ".mcp.json", native={"webfetch": {"allow": ["127.0.0.1"]}, "sandbox": {"network": "full"}}
    )
    wish = NativeWish(profile=Profile.ALL, workspace=project(home))
    settings = discover(home, wish)
    assert settings.native is not None
    assert settings.native.settings.sandbox is not None
    assert settings.native.settings.sandbox.network == "none"
    assert settings.native.settings.webfetch is None
    user_file(home, native={"sandbox": {"netwrk": "none"}})
    with pytest.raises(ConfigFileError, match="netwrk"):
        discover(home, wish)
    assert discover(home).ids == ()


def test_named_files_are_the_users_own_word(home: Path) -> None:
    """A server that a user named on the command line would wait for approval."""
    path = write_document(
        project(home) / "mine.json", servers={"a": {"command": "${TOKEN}", "sandbox": {"preset": "trusted"}}}
    )
    settings = Settings.load([path], {"TOKEN": "s3cret"})
    assert settings.origin("a").standing is Standing.NAMED
    assert (settings.candidates, settings.is_found) == ((path,), False)
    assert "s3cret" in settings.secrets
    assert settings.only("b").origins == {}
    assert settings.only("a").origin("a") == settings.origin("a")


def test_a_server_of_an_embedding_program_is_its_own_word() -> None:
    """A program's own server would be taken for a stranger's."""
    assert Settings(servers=(StdioServerConfig(id="a", command="c"),)).origin("a") is FROM_CODE


def test_rows_without_an_id_in_two_files_are_both_kept(home: Path) -> None:
    """A mistake in the second file would hide behind the one in the first."""
    paths = [write_document(home / name, servers=[{"command": "c"}]) for name in ("a.json", "b.json")]
    assert [row.id for row in Settings.load(paths, {}).broken] == ["servers[0]", "servers[0]"]


def listed(home: Path, **environ: str) -> Mapping[str, str]:
    return commands(Settings(servers=tuple(load_mcp_config(project(home), {"HOME": str(home), **environ}))))


def test_a_program_gets_the_projects_servers_before_the_users_and_those_before_older_ones(home: Path) -> None:
    """An old file would decide what a project runs."""
    write_document(project(home) / ".indusvx/mcp.json", servers=rows(a="project"))
    user_file(home, servers=rows(a="user", u="user"))
    write_document(home / ".config/indusvx/mcp.json", servers=rows(a="former", u="former", b="former"))
    write_document(home / ".indusvx/agent/mcp.json", servers=rows(b="old", c="old"))
    write_document(home / ".indusvx/agent/mcp-servers.json", servers=rows(c="older", d="older"))
    assert listed(home) == {"a": "project", "u": "user", "b": "former", "c": "old", "d": "older"}
    write_document(home / "elsewhere/quarterdeck/mcp.json", servers=rows(u="moved"))
    assert listed(home, XDG_CONFIG_HOME=str(home / "elsewhere"))["u"] == "moved"
    assert listed(home, XDG_CONFIG_HOME="")["u"] == "user"


def test_a_program_is_told_of_a_broken_file_and_a_broken_row_and_gets_the_rest(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One bad file or row would sink the session, or vanish without a word."""
    write_document(project(home) / ".indusvx/mcp.json").write_text("{")
    user_file(home, servers=rows(a="good") | {"bad": {"nothing": 1}, "off": {"command": "off", "enabled": False}})
    with caplog.at_level(logging.WARNING):
        assert listed(home) == {"a": "good"}
    assert "project/.indusvx/mcp.json" in caplog.text
    assert "bad" in caplog.text
    assert "off" not in caplog.text


def test_a_file_that_a_program_names_is_read_alone_or_is_an_error(home: Path) -> None:
    """A test's configuration would be mixed with the user's; or a user wonder where their servers are."""
    user_file(home, servers=rows(a="user"))
    mine = write_document(home / "mine.json", mcpServers={"b": {"url": "https://example.com/mcp"}})
    [only] = load_mcp_config(mine, {"HOME": str(home)})
    assert isinstance(only, SseServerConfig)
    mine.write_text("{")
    with pytest.raises(ConfigFileError, match=r"mine\.json"):
        load_mcp_config(mine, {"HOME": str(home)})
