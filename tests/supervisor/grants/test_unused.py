"""What is known of the use of grants, and what is not."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.config.places import use_places

from quarterdeck.grants.unused import GrantUse, Record, find_uses
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.policy import SandboxPolicy

QUIET = Record(30, "2026-02-01", 0, "2026-01-01", "2026-01-15")
"""No call in 30 days, of a server that was there and could have been called."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / "notes/sub").mkdir(parents=True)
    (home / "other").mkdir()
    monkeypatch.setenv("HOME", str(home))
    use_places(monkeypatch, tmp_path)
    return home


def uses(record: Record, *args: object, **sandbox: list[str]) -> list[GrantUse]:
    policy = SandboxPolicy.model_validate(sandbox)
    config = StdioServerConfig(id="s", command="/bin/cat", args=tuple(map(str, args)), sandbox=policy)
    return list(find_uses(config, sandbox, os.environ, record))


@pytest.mark.parametrize(
    ("record", "use", "is_unused"),
    [
        (QUIET, "no call in 30 days", True),
        (replace(QUIET, calls=2), "not known: 2 calls in 30 days, and no record of what they opened", False),
        (replace(QUIET, first_call="2026-02-03"), "not known: the ledger has calls since 2026-02-03 only", False),
        (replace(QUIET, first_call=""), "not known: the ledger has calls since today only", False),
        (replace(QUIET, given="2026-02-03"), "not known: its row was approved on 2026-02-03", False),
        (replace(QUIET, given=""), "not known: its row was never approved", False),
    ],
)
def test_a_grant_is_unused_only_if_nobody_called_its_server_although_they_could(
    home: Path, record: Record, use: str, is_unused: bool
) -> None:
    """A grant of yesterday would be taken away today; or one that is used each day, of which nothing is recorded."""
    [path, piece] = uses(record, read=[f"{home}/other"], grants=["git-config"])
    assert (path.use, path.is_unused) == (piece.use, piece.is_unused) == (use, is_unused)


def test_a_path_that_the_row_names_is_used_and_one_that_grants_nothing_is_not(home: Path) -> None:
    """A server would not start without the one, and does not start because of the other."""
    (home / "other/x").touch()
    found = uses(
        replace(QUIET, calls=1),
        home / "notes",
        read=[f"{home}/notes", f"{home}/gone", f"{home}/other/x"],
        write=[f"{home}/other", f"{home}/notes/sub"],
    )
    assert [(each.value.removeprefix(f"{home}/"), each.is_unused) for each in found] == [
        ("notes", False),
        ("gone", True),
        ("other/x", True),
        ("other", False),
        ("notes/sub", False),
    ]
    assert found[0].use == f"argument 1 names {home}/notes"
    assert [found[1].use, found[2].use] == ["it does not exist", f"{home}/other gives it, too"]
    assert uses(QUIET, home / "notes", read=[f"{home}/notes"])[0].is_unused is False
    (home / "notes/sub/x").touch()
    hidden = uses(replace(QUIET, calls=1), read=[f"{home}/notes", f"{home}/notes/sub/x"], hidden=[f"{home}/notes/sub"])
    assert not any(each.is_unused for each in hidden)
