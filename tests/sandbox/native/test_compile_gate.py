"""Compiling the gate: by whatever compiler there is, whole or not at all."""

import os
import platform
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from support.processes.running import output
from support.sandbox.gates import COMPILER_ONLY, COMPILERS

from quarterdeck_sandbox.gate.program import version

NATIVE = Path(__file__).resolve().parents[3] / "sandbox" / "native"

pytestmark = pytest.mark.process


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(NATIVE))
    import compile_gate

    return compile_gate


@pytest.mark.nightly
@COMPILER_ONLY
@pytest.mark.parametrize("name", COMPILERS or ("cc",))
def test_any_compiler_makes_it_without_a_warning_and_without_a_library_of_the_view(
    name: str, maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has only the other one would have no gate; where this machine's libraries are hidden, nothing would start."""
    monkeypatch.setenv("CC", name)
    place = tmp_path / "gate"
    assert maker.compile_gate(place, strict=True) == platform.machine()
    assert output(place, "version").strip() == version(platform.machine())
    assert os.listdir(tmp_path) == ["gate"]
    assert place.stat().st_mode & 0o777 == 0o755
    data = place.read_bytes()
    table, size, count = (int.from_bytes(data[at : at + width], "little") for at, width in ((32, 8), (54, 2), (56, 2)))
    kinds = {int.from_bytes(data[at : at + 4], "little") for at in range(table, table + size * count, size)}
    interpreter, dynamic = 3, 2
    assert kinds
    assert not kinds & {interpreter, dynamic}


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [("echo 'no such option' >&2; exit 1", "no such option"), ("exit 0", "could not be written")],
    ids=["fails", "makes nothing"],
)
def test_a_compiler_that_fails_leaves_what_was_there(
    text: str, said: str, maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An install would end with a traceback, or with half a program that is then executed."""
    monkeypatch.setenv("CC", script(tmp_path / "compiler", text))
    place = tmp_path / "gate"
    place.write_text("before")
    with pytest.raises(maker.NotBuiltError, match=said):
        maker.compile_gate(place)
    assert place.read_text() == "before"
    assert sorted(os.listdir(tmp_path)) == ["compiler", "gate"]


@pytest.mark.skipif(find_spec("ziglang") is not None, reason="ziglang is installed")
def test_without_a_compiler_a_build_requires_one_and_says_what_was_looked_for(
    maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An install on a machine without one would start nothing; or a hundred megabytes would be fetched in vain."""
    monkeypatch.delenv("CC", raising=False)
    assert maker.requirements() == [] if COMPILERS else [maker.ZIG]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert maker.requirements() == [maker.ZIG]
    with pytest.raises(maker.NotBuiltError, match="no C compiler"):
        maker.compile_gate(tmp_path / "gate")
    monkeypatch.setenv("CC", "my-cc")
    assert maker.requirements() == []


def test_where_there_is_no_gate_no_compiler_is_required(maker: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """An install on a Mac would fetch a compiler that it has no use for."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert maker.requirements() == []


def test_a_program_of_other_sources_is_not_taken(
    maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel would carry what doctor refuses."""
    old = tmp_path / "old"
    text = f"\x7fELF{'.' * 14}".encode() + (62 if platform.machine() == "x86_64" else 183).to_bytes(2, "little")
    old.write_bytes(text)
    monkeypatch.setenv("CC", script(tmp_path / "compiler", f'case "$*" in *"-o program"*) cp {old} program;; esac'))
    with pytest.raises(maker.NotBuiltError, match=r"could not be run|does not say"):
        maker.compile_gate(tmp_path / "gate")


def test_another_system_has_none(maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An install on a Mac would fail over Linux's calls."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(maker.NotBuiltError, match="darwin"):
        maker.compile_gate(tmp_path / "gate")
