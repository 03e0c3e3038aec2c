"""What a project's file may not do."""

from pathlib import Path

import pytest

from quarterdeck.config.load.project import ProjectBounds, excesses, project_root, strictest
from quarterdeck_protocol.configs import AskMode, SseServerConfig, StdioServerConfig, TrustMode

PLACE = "mcpServers.fs"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "home").mkdir()
    return (tmp_path / "project").resolve()


def wants(root: Path, **fields: object) -> list[str]:
    config = StdioServerConfig.model_validate({"id": "fs", "command": "c", **fields})
    bounds = ProjectBounds(str(root), frozenset({"ALLOWED"}))
    return [problem.location.removeprefix(f"{PLACE}.") for problem in excesses(config, bounds, PLACE)]


@pytest.mark.parametrize(
    "sandbox",
    [
        {},
        {"preset": "standard"},
        {"preset": "strict"},
        {"preset": "strict", "limits": {"cpu_s": None, "memory_bytes": "1 GiB"}, "require": []},
        *({"network": "none"}, {"network": "loopback"}, {"network": "internet"}, {"hidden": ["/etc/passwd"]}),
        {"environment": ["ALLOWED"]},
        {"limits": {"memory_bytes": "2 GiB", "processes": 1, "output_bytes": "1 GiB"}},
        {"require": ["filesystem"]},
        {"minimum": "bubblewrap"},
    ],
)
def test_what_is_as_tight_as_the_default_is_allowed(root: Path, sandbox: dict[str, object]) -> None:
    """A project could not even tighten its own servers."""
    assert wants(root, sandbox=sandbox, inherit_env=["ALLOWED"]) == []


@pytest.mark.parametrize(
    ("sandbox", "key"),
    [
        ({"preset": "trusted"}, "sandbox.preset"),
        ({"network": "full"}, "sandbox.network"),
        ({"network": ["intranet.example:443"]}, "sandbox.network"),
        ({"read": ["/etc"]}, "sandbox.read[0]"),
        ({"write": ["/"]}, "sandbox.write[0]"),
        ({"grants": ["ssh-agent"]}, "sandbox.grants"),
        ({"environment": ["AWS_SECRET_ACCESS_KEY"]}, "sandbox.environment[0]"),
        ({"minimum": "limits"}, "sandbox.minimum"),
        ({"limits": {"memory_bytes": "3 GiB"}}, "sandbox.limits.memory_bytes"),
        ({"limits": {"processes": None}}, "sandbox.limits.processes"),
        ({"preset": "strict", "limits": {"open_files": 5000}}, "sandbox.limits.open_files"),
    ],
)
def test_each_key_that_loosens_the_sandbox_is_refused(root: Path, sandbox: dict[str, object], key: str) -> None:
    """A repository would choose how far its own programs reach on the machine of whoever opens it."""
    assert wants(root, sandbox=sandbox) == [key]


def test_all_of_them_are_told_at_once(root: Path) -> None:
    """A user would move a row into their own file piece by piece."""
    sandbox = {"preset": "trusted", "read": ["/etc"], "grants": ["aws"]}
    assert wants(root, sandbox=sandbox, inherit_env=["ALLOWED", "HOME"], seal=False, max_seal_bytes=3 << 30) == [
        "seal",
        "max_seal_bytes",
        "inherit_env[1]",
        "sandbox.preset",
        "sandbox.read[0]",
        "sandbox.grants",
    ]


def test_a_path_counts_by_where_it_leads(root: Path) -> None:
    """A link in the repository would be a way to the user's keys."""
    (root / "keys").symlink_to(root.parent / "home")
    (root / "src").mkdir()
    assert wants(root, sandbox={"write": [str(root), str(root / "src"), str(root / "new")]}) == []
    assert wants(root, sandbox={"read": [str(root / "src/../../home"), str(root / "keys/id"), f"{root}-other"]}) == [
        "sandbox.read[0]",
        "sandbox.read[1]",
        "sandbox.read[2]",
    ]


def test_a_remote_server_has_nothing_to_loosen(root: Path) -> None:
    """A project could not name a server on the internet."""
    assert excesses(SseServerConfig(id="r", url="https://h"), ProjectBounds(str(root)), PLACE) == ()


def test_trust_only_ever_becomes_stricter() -> None:
    """A repository would say that nobody need look at what it changes."""
    usual, strict = ProjectBounds("/p"), ProjectBounds("/p", trust=TrustMode.STRICT)
    assert [strictest(mode, usual) for mode in TrustMode] == [TrustMode.BASELINE, TrustMode.STRICT, TrustMode.BASELINE]
    assert {strictest(mode, strict) for mode in TrustMode} == {TrustMode.STRICT}


def test_a_project_may_not_have_secrets_asked_for(root: Path) -> None:
    """A repository would let its server ask for what no question may ask for."""
    assert wants(root, ask="allow") == ["ask"]
    assert [wants(root, ask=mode) for mode in ("label", "deny")] == [[], []]
    remote = SseServerConfig(id="r", url="https://h", ask=AskMode.ALLOW)
    assert [each.location for each in excesses(remote, ProjectBounds(str(root)), PLACE)] == [f"{PLACE}.ask"]


def test_the_home_directory_is_nobodys_project(root: Path) -> None:
    """Started in the home directory, as desktop programs are, everything of the user's would be the project's."""
    home = root.parent / "home"
    assert project_root(root, (home,)) == str(root)
    assert project_root(home, (home,)) is None
    assert project_root(root.parent, (home,)) is None
    assert project_root(Path("/"), (home,)) is None
    assert project_root(home / "project", (home,)) == str(home.resolve() / "project")
    assert not ProjectBounds(None).holds(str(home))
