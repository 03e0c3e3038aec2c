"""Everything that is wrong with configuration files."""

import json
from pathlib import Path

import pytest

from quarterdeck.config.load.merge import load_found, load_named
from quarterdeck.config.load.report import ConfigProblem, check_files


def check(*paths: Path) -> list[ConfigProblem]:
    return list(check_files(load_named(paths, {"TOKEN": "s3cret"})))


def write(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_every_problem_of_every_row_is_found(tmp_path: Path) -> None:
    """A user would correct one mistake after the other, with a start for each."""
    rows = {
        "a": {"command": "c", "evn": {}, "args": [1, "${GONE}"], "env": {"A": ["s3cret"]}},
        "b": {"url": "ftp://s3cret"},
        "c": {"command": "c"},
    }
    path = write(tmp_path / "a.json", {"mcpServers": rows, "native": {"sandbocks": {}, "webfetch": 5}, "trust": 5})
    found = check(path)
    assert all(finding.is_error and finding.file == path for finding in found)
    assert [(finding.server, finding.location, finding.code, finding.nearest) for finding in found] == [
        ("", "trust", "config_invalid", None),
        ("", "native.webfetch", "config_invalid", None),
        ("", "native", "config_invalid", "sandbox"),
        ("a", "mcpServers.a", "config_invalid", "env"),
        ("a", "mcpServers.a.args[1]", "unset_variable", None),
        ("a", "mcpServers.a.args[0]", "config_invalid", None),
        ("a", "mcpServers.a.env.A", "config_invalid", None),
        ("a", "trust", "config_invalid", None),
        ("b", "mcpServers.b.url", "config_invalid", None),
        ("b", "trust", "config_invalid", None),
        ("c", "trust", "config_invalid", None),
    ]
    assert "s3cret" not in str(found)


@pytest.mark.parametrize("content", ["{", "[]", '{"other": 1}', None])
def test_a_file_of_which_nothing_can_be_used_is_one_finding(tmp_path: Path, content: str | None) -> None:
    """`config check` would fall over the very file that it is asked about."""
    path = tmp_path / "a.json"
    if content is not None:
        write(path, content)
    [finding] = check(path)
    assert (finding.file, finding.server, finding.location, finding.is_error) == (path, "", "", True)
    assert str(finding) == f"{path}: {finding.reason}"


def test_what_is_ignored_or_set_aside_is_told_and_no_error(tmp_path: Path) -> None:
    """A user would never learn why a server of theirs is not there."""
    first = write(tmp_path / "a.json", {"servers": {"a": {"command": "c", "timeout": 5}}, "native": {"sandbox": {}}})
    second = write(tmp_path / "b.json", {"servers": {"a": {"command": "d"}}, "native": {"sandbox": {}}, "extra": 1})
    found = check(first, second)
    assert not any(finding.is_error for finding in found)
    assert [(finding.file, finding.reason) for finding in found] == [
        (first, "servers.a: ignored: 'timeout'"),
        (second, "ignored: 'extra'"),
        (second, f"'a' is ignored: {first} defines it first"),
        (second, f"'native.sandbox' is ignored: {first} defines it first"),
    ]


def test_places_without_a_file_are_no_mistake(tmp_path: Path) -> None:
    """A machine without any configuration would be called broken."""
    assert check_files(load_found(tmp_path, {"HOME": str(tmp_path / "home")})) == ()
