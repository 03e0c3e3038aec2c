"""Imports beside a running event loop."""

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from types import ModuleType

import pytest

import quarterdeck
from quarterdeck.common.imports import imported

MEET_S = 0.1
"""How long a module waits for another one to be imported beside it; in vain, where imports take turns."""

IN_A_THREAD = re.compile(r"(to_thread|run_sync|run_in_executor)\([^)]*\bimport_module")


@pytest.fixture
def met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Two modules, `one` and `other`; their names are noted here when both are imported at the same time."""
    found: list[str] = []
    barrier = Barrier(2)

    def meet(name: str) -> None:
        try:
            barrier.wait(MEET_S)
            found.append(name)
        except BrokenBarrierError:
            pass

    meeting = ModuleType("place_to_meet")
    monkeypatch.setitem(sys.modules, meeting.__name__, meeting)
    monkeypatch.setattr(meeting, "meet", meet, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("one_to_import", "other_to_import"):
        (tmp_path / f"{name}.py").write_text("from place_to_meet import meet\nmeet(__name__)\n", encoding="utf-8")
    yield found
    for name in ("one_to_import", "other_to_import"):
        sys.modules.pop(name, None)


async def test_two_modules_are_never_imported_at_the_same_time(met: list[str]) -> None:
    """Each import could wait for a module that the other is importing: HTTP would stay down as long as the daemon."""
    await asyncio.gather(imported("one_to_import"), imported("other_to_import"))
    assert {"one_to_import", "other_to_import"} <= sys.modules.keys()
    assert met == []


def test_every_import_in_a_thread_waits_for_its_turn() -> None:
    """An import that goes its own way would bring the deadlock back."""
    root = Path(quarterdeck.__file__).parent
    sources = {path: path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    assert [str(path.relative_to(root)) for path, text in sources.items() if IN_A_THREAD.search(text)] == []
