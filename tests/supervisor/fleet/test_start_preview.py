"""What would become of a server's start, without one."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from quarterdeck.fleet.start_preview import Outlook, preview_start, private_homes_folder
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_sandbox.policy.machine import Bubblewrap, Machine

pytestmark = pytest.mark.process

WEAK = Machine("linux", "x86_64", "6.12.0", landlock_abi=6, seccomp=True, gate="/gate")
BUBBLEWRAP = Bubblewrap("/b", works=True, makes_network=True, nests_safely=True)
STRONG = replace(WEAK, bubblewrap=BUBBLEWRAP, closes=True, pasta="/p")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state" / "quarterdeck"))
    monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path


def server(**fields: object) -> StdioServerConfig:
    return StdioServerConfig.model_validate({"id": "one", "command": "/bin/sh", **fields})


def test_a_server_that_starts_and_one_that_starts_weaker_are_told_apart() -> None:
    """A user would not know which of the servers a machine's gaps concern."""
    assert preview_start(server(), STRONG).outlook is Outlook.STARTS
    weaker = preview_start(server(), WEAK)
    assert weaker.outlook is Outlook.WEAKER
    assert any(line.startswith("network: ") and "install" in line for line in weaker.why)


def test_a_server_that_may_write_the_users_word_is_told_to_be_refused(state: Path) -> None:
    """`config check` would promise a start that never comes."""
    folder = state / "project"
    folder.mkdir()
    (folder / "mcp.json").write_text("{}")
    row = server(sandbox={"write": [str(folder / "mcp.json")]})
    assert preview_start(row, STRONG).outlook is not Outlook.REFUSED
    refused = preview_start(row, STRONG, [str(folder / "mcp.json")])
    assert refused.outlook is Outlook.REFUSED
    assert "that quarterdeck trusts" in refused.why[0]


@pytest.mark.parametrize(
    ("fields", "said", "code"),
    [
        ({"command": "no-such-command"}, "no-such-command is not on its PATH", "command_not_found"),
        (
            {"sandbox": {"preset": "strict"}},
            "the policy needs bubblewrap and this machine gives landlock",
            "sandbox_refused",
        ),
        ({"args": ["DOCUMENTS"]}, '"read": ["DOCUMENTS"]', "sandbox_refused"),
        ({"cwd": "/no/such/place"}, "/no/such/place does not exist", "bad_cwd"),
    ],
)
def test_a_refusal_is_told_with_what_to_do(fields: dict[str, object], said: str, code: str, state: Path) -> None:
    """It would be found out by a start that fails."""
    (state / "documents").mkdir()
    here = str(state / "documents")
    if "args" in fields:
        fields = {"args": [here]}
    found = preview_start(server(**fields), WEAK)
    assert (found.outlook, found.code) == (Outlook.REFUSED, code)
    assert said.replace("DOCUMENTS", here) in found.why[0]


def test_a_server_that_could_write_the_users_word_is_told_before_it_starts(state: Path) -> None:
    """`doctor` and `config check` would call fine what every start refuses."""
    mine = state / "mine"
    mine.mkdir()
    config = mine / "mcp.json"
    config.write_text("{}")
    writer = server(sandbox={"write": [str(mine)]})
    assert preview_start(writer, WEAK).outlook is Outlook.WEAKER
    found = preview_start(writer, WEAK, (str(config),))
    assert (found.outlook, found.code) == (Outlook.REFUSED, "sandbox_refused")
    assert str(config) in found.why[0]


def test_a_state_directory_that_cannot_be_written_to_is_a_refusal(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`config check` would end with an error of ours where everything is read-only."""
    monkeypatch.setattr("quarterdeck.fleet.start_preview.os.access", lambda *_: False)
    found = preview_start(server(), WEAK)
    assert (found.outlook, found.code) == (Outlook.REFUSED, "directory_unusable")
    assert str(state / "state" / "quarterdeck") in found.why[0]


def test_nothing_is_left_behind(state: Path) -> None:
    """Every look would leave a folder."""
    assert private_homes_folder() == str(state)
    preview_start(server(), WEAK)
    assert list(state.iterdir()) == []
