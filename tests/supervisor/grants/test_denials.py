"""Proposals from denied calls: the narrowest path with its evidence, and nothing that a server could want unseen."""

import os
from pathlib import Path

import pytest
from support.config.places import use_places

from quarterdeck.config.places.paths import runtime_dir, seals_dir, state_dir
from quarterdeck.grants.denials import MAX_PROPOSALS, MAX_TOOLS, DeniedCall, Proposals, objection_to, propose
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.policy import SandboxPolicy


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    for name in ("notes/sub", "drafts", ".ssh", ".config/Claude", ".config/quarterdeck", "proj/.git"):
        (home / name).mkdir(parents=True)
    for name in ("notes/a.md", "notes/b.md", ".ssh/id", ".netrc", "proj/.env", "plain"):
        (home / name).touch()
    (home / ".config/Claude/claude_desktop_config.json").write_text("{}")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    use_places(monkeypatch, tmp_path)
    return home


def call(denied: object, tool: str = "read_file", day: int = 1) -> DeniedCall:
    key, _, path = str(denied).partition(" ")
    return DeniedCall(f"2026-01-{day:02}", tool, "editor", f"{key} {path}")


def proposed(*calls: DeniedCall, writing: tuple[str, ...] = (), **sandbox: list[str]) -> Proposals:
    policy = SandboxPolicy.model_validate(sandbox)
    config, own = StdioServerConfig(id="s", command="/bin/cat", sandbox=policy), state_dir() / "servers/s"
    return propose(calls, policy, writing, objection_to(config, own / "home", own / "tmp", os.environ))


def shown(found: Proposals) -> list[tuple[str, str]]:
    return [(each.key, each.path) for each in found.found]


def test_calls_of_one_path_are_one_proposal_with_the_last_of_them_as_its_example(home: Path) -> None:
    """A person could not tell a path that is missing each day from one that a server named once."""
    note = f"read {home}/notes/a.md"
    found = proposed(call(note, "edit", 5), call(f"read {home}/plain", day=4), call(note, day=3), call(note, day=1))
    assert shown(found) == [("read", f"{home}/notes/a.md"), ("read", f"{home}/plain")]
    [first, _] = found.found
    assert (first.count, first.tools, first.first, first.last) == (3, ("edit", "read_file"), "2026-01-01", "2026-01-05")
    assert first.example == call(note, "edit", 5)
    assert (first.need.key, first.need.value, first.need.is_default) == ("read", f"{home}/notes/a.md", True)
    many = proposed(*(call(note, f"tool{number}") for number in range(99)))
    assert len(many.found[0].tools) == MAX_TOOLS


def test_what_a_writing_tool_was_denied_is_proposed_to_be_written(home: Path) -> None:
    """Each path would have to be given twice: for the first error of a hidden file does not say what was meant."""
    found = proposed(call(f"read {home}/drafts", "write"), call(f"write {home}/notes/a.md"), writing=("write",))
    assert shown(found) == [("write", f"{home}/drafts"), ("write", f"{home}/notes/a.md")]


def test_a_path_that_is_gone_gives_way_to_the_nearest_folder_unless_that_is_too_wide(home: Path) -> None:
    """A home would be proposed for the sake of a file that was renamed."""
    found = proposed(
        *(call(f"read {home}/{name}") for name in ("notes/new/x.md", "gone.md")), call(f"read {home}/notes", day=9)
    )
    assert shown(found) == [("read", f"{home}/notes")]
    assert (found.found[0].count, found.found[0].last) == (2, "2026-01-09")
    assert found.found[0].remark == f"for {home}/notes/new/x.md, which is gone"
    [refused] = found.refused
    assert refused.startswith(f"{home} is not proposed: ")


def test_what_was_given_meanwhile_is_proposed_no_more(home: Path) -> None:
    """The table would never become empty."""
    read, write = f"read {home}/notes/a.md", f"write {home}/notes/a.md"
    assert shown(proposed(call(read), call(write), read=[f"{home}/notes"])) == [("write", f"{home}/notes/a.md")]
    assert shown(proposed(call(read), call(write), write=[f"{home}/notes"])) == []


def test_secrets_our_own_places_clients_files_and_wide_folders_are_never_proposed(home: Path) -> None:
    """A server would name what it wants, and a person who trusts the table give it."""
    os.mkfifo(home / "socket")
    for path in (
        *(home / name for name in (".ssh/id", ".ssh", ".netrc", "proj/.env", "proj/.git", ".config", "socket")),
        *(home, home.parent, "/", "/etc", "/etc/shadow", "/tmp", "/proc/1/environ", "/dev/sda", "/run/docker.sock"),
        *(state_dir(), state_dir() / "ledger", runtime_dir(), home / ".config/quarterdeck", home / ".config/Claude"),
    ):
        for key in ("read", "write"):
            assert proposed(call(f"{key} {path}")).found == (), path
    (seals_dir() / "a/tree").mkdir(parents=True)
    for sealed in (seals_dir().parent, seals_dir(), seals_dir() / "a/tree"):
        assert proposed(call(f"write {sealed}")).found == (), sealed
    for name in (".git", ".git/hooks", ".git/config"):
        assert proposed(call(f"write {home}/proj/{name}"), read=[f"{home}/proj"]).found == (), name
    for damaged in ("", "read", "read relative", f"read {home}/notes/../.ssh/id", f"run {home}/notes", "read /a\0b"):
        assert proposed(call(damaged)).found == ()


def test_a_link_is_no_way_around_that(home: Path) -> None:
    """Between denial and grant a file would be replaced by a link to something else, or a home be named by a link."""
    bare = home.parent / "bare"
    bare.mkdir()
    (home.parent / "link").symlink_to(bare)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home.parent / "link"))
        assert proposed(call(f"read {bare}"), call(f"read {home.parent}/link")).found == ()
    (home / "of-a-program").symlink_to(home / "proj/.env")
    assert proposed(call(f"read {home}/of-a-program")).found == ()
    link = home / "notes/link"
    link.symlink_to(home / ".ssh/id")
    assert proposed(call(f"read {link}")).found == ()
    link.unlink()
    link.symlink_to(home / "plain")
    [linked] = proposed(call(f"read {link}")).found
    assert (linked.path, linked.real, linked.is_default) == (str(link), f"{home}/plain", False)
    assert linked.remark == f"leads to {home}/plain"
    (home / "moved").symlink_to(home / "notes")
    [moved] = proposed(call(f"read {home}/moved/a.md")).found
    assert (moved.is_default, moved.remark) == (True, f"leads to {home}/notes/a.md")
    (home / "drafts/out").symlink_to(home / "plain")
    assert proposed(call(f"read {home}/drafts/out"), write=[f"{home}/drafts"]).found == (), "it made that link itself"


def test_a_flood_of_paths_is_proposed_in_part(home: Path) -> None:
    """A table of thousands would be answered with yes."""
    for number in range(MAX_PROPOSALS + 20):
        (home / f"notes/{number}").touch()
    flood = [call(f"read {home}/notes/{number}") for number in range(MAX_PROPOSALS + 20)]
    found = proposed(*flood, call(f"read {home}/plain"), call(f"read {home}/plain"))
    assert (len(found.found), found.more) == (MAX_PROPOSALS, 21)
    assert found.found[0].path == f"{home}/plain"


def test_a_host_is_proposed_where_a_list_lacks_it_and_is_not_given_by_default(home: Path) -> None:
    """A server that must not send files out would have its author's host listed by a yes to all."""
    hosts = ("api.example.com:443", "listed.example:443", "10.0.0.5:443", "localhost:22", "nas:445")
    damaged = ("API.example.com:443", "api.example.com", "*.example.com:1", "a.example:443\x1b")
    denied = [call(f"network {host}") for host in (*hosts, *damaged)]
    found = proposed(*denied, network=["listed.example:443"], writing=("read_file",))
    assert shown(found) == [("network", "api.example.com:443")]
    assert found.refused == ()
    need = found.found[0].need
    assert (need.key, need.value, need.is_default) == ("network", "api.example.com:443", False)
    assert proposed(*denied).found == (), "it reaches the whole internet"
