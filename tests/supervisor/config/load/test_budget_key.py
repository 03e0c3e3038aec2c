"""The key `max_result_tokens`: what it may say, and in whose file."""

import json
from pathlib import Path

import pytest

from quarterdeck.config.load.file import LoadedConfig, load_config_file
from quarterdeck.config.load.origin import Standing
from quarterdeck.config.load.project import ProjectBounds
from quarterdeck.config.settings import Settings

ENVIRON = {"HOME": "/home/u"}


def load(folder: Path, value: object, *, is_projects: bool = False) -> LoadedConfig:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"max_result_tokens": value}))
    if is_projects:
        bounds = ProjectBounds(str(folder.resolve()))
        return load_config_file(path, ENVIRON, standing=Standing.PROJECT, bounds=bounds)
    return load_config_file(path, ENVIRON)


def test_it_is_read_alone_or_left_out(tmp_path: Path) -> None:
    """Results would be whole, or be cut where nobody said so."""
    assert load(tmp_path, 500).max_result_tokens == 500
    assert load(tmp_path, None).max_result_tokens is None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("500", "expected a whole number, got a string"),
        (True, "expected a whole number"),
        (1.5, "expected a whole number"),
        (0, "must be from 1 to 1,000,000,000"),
        (10**10, "must be from 1 to 1,000,000,000"),
    ],
)
def test_what_is_no_budget_is_said(tmp_path: Path, value: object, says: str) -> None:
    """A slip would let everything through without a word."""
    loaded = load(tmp_path, value)
    assert loaded.max_result_tokens is None
    [problem] = loaded.top_problems
    assert f"max_result_tokens: {says}" in str(problem)
    assert any(says in warning for warning in loaded.warnings)


def test_a_projects_file_does_not_say_it(tmp_path: Path) -> None:
    """A project could have its user's model see nothing of what tools answer."""
    loaded = load(tmp_path, 1, is_projects=True)
    assert loaded.max_result_tokens is None
    assert any("max_result_tokens: ignored" in warning for warning in loaded.warnings)


def test_the_earlier_file_wins(tmp_path: Path) -> None:
    """Which of two budgets counts would be chance."""
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, said in zip(paths, (7, 9), strict=True):
        path.write_text(json.dumps({"max_result_tokens": said}))
    assert Settings.load(paths, ENVIRON).max_result_tokens == 7
