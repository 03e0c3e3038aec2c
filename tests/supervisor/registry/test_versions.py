"""Which version of a package is the latest: what npm, uv and pip say, and what they may say instead."""

import os
from pathlib import Path

import pytest

from quarterdeck.registry.versions import VersionError, latest_version, latest_versions
from quarterdeck.seals.request import PackageIndex, PackageRequest

pytestmark = pytest.mark.process

NPM = PackageRequest("npx", PackageIndex.NPM, "@scope/server", "")
PYPI = PackageRequest("uvx", PackageIndex.PYPI, "Mcp_Time", "")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, for programs that pretend to be package managers."""
    (tmp_path / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def pretend(folder: Path, name: str, script: str) -> None:
    """A program that writes what it was asked to a file, and then does this."""
    path = folder / name
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" > {folder}/asked-{name}\n{script}\n')
    path.chmod(0o755)


def test_npm_is_asked_for_the_version_that_it_would_install(programs: Path) -> None:
    """A user of a mirror would be told what another registry has."""
    pretend(programs, "npm", "echo 'npm warn old' >&2; echo '\"1.4.0\"'")
    assert latest_version(NPM) == "1.4.0"
    assert (programs / "asked-npm").read_text() == "view --json -- @scope/server version\n"


def test_uv_is_asked_by_the_name_that_it_resolves(programs: Path) -> None:
    """What uvx starts would be another version than the one that is told; nothing may be built to find out."""
    pretend(
        programs, "uv", 'read name; echo "$name" >> ' + f"{programs}/asked-uv; echo 'warning: x'; echo mcp-time==2.2.0"
    )
    assert latest_version(PYPI) == "2.2.0"
    asked = (programs / "asked-uv").read_text()
    assert "--no-build" in asked
    assert "--no-deps" in asked
    assert asked.endswith("Mcp_Time\n")


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            'echo \'{"error": {"code": "E404", "summary": "no"}}\'; exit 1',
            "npm's registry has no package @scope/server",
        ),
        ('echo \'{"error": {"code": "E401", "summary": "log in\\u001b[2J"}}\'; exit 1', r"log in\\x1b"),
        ("echo '<html>'; exit 1", "npm does not say"),
        ("exit 1", "npm does not say"),
        ("echo '\"--evil\"'", "is no version"),
        ("echo '[\"1.0.0\"]'", "npm does not say"),
        ("echo '\"1.0.0\"'; exit 1", "npm does not say"),
    ],
)
def test_what_is_no_answer_is_said(programs: Path, script: str, says: str) -> None:
    """An error page would be pinned, or an option."""
    pretend(programs, "npm", script)
    with pytest.raises(VersionError, match=says):
        latest_version(NPM)


def test_what_uv_says_is_told_in_one_line(programs: Path) -> None:
    """A user would not learn that the package is not there."""
    pretend(programs, "uv", "echo '  × No solution found:' >&2; echo '  ╰─▶ mcp-time was not found' >&2; exit 1")
    with pytest.raises(VersionError, match="which version of Mcp_Time is the latest: mcp-time was not found"):
        latest_version(PYPI)


def test_without_the_program_it_is_said_which_one_is_missing(programs: Path) -> None:
    """A user would look for what is wrong with the package."""
    with pytest.raises(VersionError, match="npm is not on PATH"):
        latest_version(NPM)


def test_one_that_is_not_known_costs_no_other(programs: Path) -> None:
    """One private package would hide what has moved of all others."""
    pretend(programs, "npm", 'case "$4" in bad) exit 1;; *) echo \'"1.0.0"\';; esac')
    bad = PackageRequest("npx", PackageIndex.NPM, "bad", "")
    first, second, third = latest_versions([NPM, bad, NPM])
    assert (first, third) == ("1.0.0", "1.0.0")
    assert isinstance(second, VersionError)


def test_no_projects_settings_are_read(programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cloned repository's .npmrc would say which registry is asked, and run what it names."""
    pretend(programs, "npm", 'echo "$PWD" > ' + f"{programs}/where; echo '\"1.0.0\"'")
    monkeypatch.chdir(tmp_path)
    latest_version(NPM)
    assert (programs / "where").read_text() == f"{os.sep}\n"
