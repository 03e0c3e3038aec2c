"""A context on this machine, for programs that embed us."""

from pathlib import Path

import pytest

from quarterdeck.tools.context import BackendUnavailableError, Framework, OutsideRootsError, UnavailableShell
from quarterdeck.tools.files.local_files import make_local_context
from quarterdeck.tools.files.roots import Roots
from quarterdeck.tools.results import STANDARD_BUDGET, BudgetKind, OutputBudget
from quarterdeck.tools.runner import OverflowFiles
from quarterdeck_protocol.tools import CancelToken


async def test_its_files_are_those_of_its_directory_and_no_others(tmp_path: Path) -> None:
    """A tool could touch any file of the machine, or none."""
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "work").mkdir()
    context = make_local_context(str(tmp_path / "work"))
    await context.fs.write_file("f", "text")
    assert (tmp_path / "work" / "f").read_text() == await context.fs.read_text(str(tmp_path / "work" / "f")) == "text"
    for path in ("../outside", str(tmp_path / "outside")):
        with pytest.raises(OutsideRootsError):
            await context.fs.read_text(path)


async def test_by_default_it_runs_no_commands_and_keeps_nothing(tmp_path: Path) -> None:
    """A command would run outside of any sandbox."""
    context = make_local_context(tmp_path)
    with pytest.raises(BackendUnavailableError):
        await context.shell.exec("true")
    assert (context.budget, context.framework, context.overflow) == (STANDARD_BUDGET, Framework(), None)
    assert not context.cancel.cancelled


def test_what_is_given_is_taken(tmp_path: Path) -> None:
    """A host's handles would be lost."""
    cancel, budget, framework = CancelToken(), OutputBudget(BudgetKind.TAIL, 0), Framework(read_state=object())
    shell, overflow = UnavailableShell(), OverflowFiles(tmp_path)
    context = make_local_context(str(tmp_path), cancel, budget, framework, shell=shell, overflow=overflow)
    assert (context.cancel, context.shell, context.overflow) == (cancel, shell, overflow)
    assert (context.budget, context.framework) == (budget, framework)


async def test_its_roots_may_be_others_than_its_directory(tmp_path: Path) -> None:
    """An allowed directory could not be used; or the directory would be open although the roots say otherwise."""
    for name in ("work", "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(name)
    context = make_local_context(str(tmp_path / "work"), roots=Roots(tmp_path / "data"))
    assert await context.fs.read_text("../data/f") == "data"
    with pytest.raises(OutsideRootsError):
        await context.fs.read_text("f")


async def test_a_context_of_its_own_writes_no_configuration_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An embedding program's agent would write what every `quarterdeck` of the user believes."""
    monkeypatch.setenv("QUARTERDECK_CONFIG", str(tmp_path / "mcp.json"))
    context = make_local_context(tmp_path)
    await context.fs.write_file("other.json", "x")
    with pytest.raises(OutsideRootsError, match="user's own settings"):
        await context.fs.write_file("mcp.json", "x")
