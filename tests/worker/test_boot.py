"""Entering a module of ours in an interpreter that trusts nothing around it."""

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest
from support.processes.running import output
from support.sandbox.machine_facts import LINUX_ONLY

pytestmark = pytest.mark.process

BOOT = Path(__file__).resolve().parents[2] / "worker" / "quarterdeck_worker" / "boot.py"
MODULE = """
import gc, json, sys
seen = {"argv": sys.argv, "path": sys.path, "name": __name__, "isolated": sys.flags.isolated}
print(json.dumps(seen | {"collects": gc.isenabled()}))
"""


def boot(owner: int | str, *words: object, **options: Any) -> str:
    """What a module prints that is entered this way, with an owner of this pid."""
    return output(sys.executable, "-I", BOOT, str(owner), *map(str, words), **options)


def test_a_module_is_entered_as_a_program_with_the_named_folders_and_no_other(tmp_path: Path) -> None:
    """A file in the user's directory could take the place of a module of ours."""
    ours, evil = tmp_path / "ours", tmp_path / "evil"
    for folder in (ours, evil):
        folder.mkdir()
    (ours / "entered.py").write_text(MODULE)
    (evil / "json.py").write_text("raise SystemExit('a foreign module was imported')")
    folders = os.pathsep.join((str(ours), str(tmp_path / "more")))
    seen = json.loads(boot(os.getpid(), 0, folders, "entered", "7", "x y", cwd=evil, env={"PYTHONPATH": str(evil)}))
    assert seen["argv"][1:] == ["7", "x y"]
    assert seen["argv"][0].endswith("entered.py")
    assert seen["name"] == "__main__"
    assert seen["isolated"] == 1
    assert not seen["collects"]
    assert seen["path"][-2:] == [str(ours), str(tmp_path / "more")]
    assert not {"", ".", str(evil)} & set(seen["path"])


def test_a_folder_that_is_known_already_is_not_named_twice(tmp_path: Path) -> None:
    """Every import would search the same place again and again."""
    (tmp_path / "entered.py").write_text(MODULE)
    folders = os.pathsep.join([str(tmp_path)] * 3 + [str(Path(json.__file__).parents[1])])
    path = json.loads(boot(os.getpid(), 0, folders, "entered", cwd=tmp_path))["path"]
    assert path.count(str(Path(json.__file__).parents[1])) == 1


@LINUX_ONLY
def test_nothing_is_entered_when_the_owner_has_ended_already(tmp_path: Path) -> None:
    """Between its start and its first instruction an owner can die, and no signal would tell it."""
    (tmp_path / "entered.py").write_text(MODULE)
    gone = "1" if os.getpid() != 1 else "0"
    assert boot(gone, 0, tmp_path, "entered") == ""


def test_the_soft_limit_of_open_files_is_the_named_one(tmp_path: Path) -> None:
    """Servers would inherit what our owner has raised for itself."""
    (tmp_path / "entered.py").write_text("import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE))")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    for named, soft in (("99", 99), ("0", before[0])):
        assert boot(os.getpid(), named, tmp_path, "entered").split() == [str(soft), str(before[1])]
