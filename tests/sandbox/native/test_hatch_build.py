"""Wheels: for one platform with the gate in them, for all without; made from a checkout, and from its sdist."""

import ctypes
import os
import platform
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.processes.running import output, run
from support.sandbox.gates import COMPILER_ONLY, COMPILERS

from quarterdeck_sandbox.gate.program import version

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[3]
GATE = "quarterdeck_sandbox/gate/quarterdeck-gate"
PAGES = "quarterdeck_worker/quarterdeck-pages.so"  # the workers' library

pytest.importorskip("hatchling")


def build(place: Path, kind: str, folder: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """What hatchling makes of a folder."""
    output(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", place, cwd=folder, env=dict(environ))
    [made] = place.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    output("tar", "-xzf", build(folder, "sdist", ROOT), "-C", folder)
    [found] = (path for path in folder.iterdir() if path.is_dir())
    return found


def test_an_sdist_holds_the_source_and_no_program(unpacked: Path) -> None:
    """Whoever builds from it would get another machine's program, or none."""
    sources = sorted(path.name for path in (ROOT / "sandbox/native").iterdir() if path.is_file())
    assert sorted(path.name for path in (unpacked / "sandbox/native").iterdir()) == sources
    assert not (unpacked / "sandbox" / GATE).exists()
    assert (unpacked / "worker/native/pages.c").exists()
    assert not (unpacked / "worker" / PAGES).exists()


@COMPILER_ONLY
def test_a_wheel_of_an_sdist_is_for_its_platform_with_a_gate_that_runs(unpacked: Path, tmp_path: Path) -> None:
    """No installed quarterdeck could start a server; or the program would be put where it cannot run."""
    wheel = build(tmp_path, "wheel", unpacked)
    machine = platform.machine()
    tags = wheel.stem.split("-", 2)[2]
    assert tags == f"py3-none-manylinux_2_17_{machine}.manylinux2014_{machine}.musllinux_1_1_{machine}"
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if name.endswith((".c", ".h", "compile_gate.py"))] == []
        # As an installer does it, which keeps that it is a program.
        assert archive.getinfo(GATE).external_attr >> 16 & 0o777 == 0o755
        gate = Path(archive.extract(GATE, tmp_path))
        assert ctypes.CDLL(archive.extract(PAGES, tmp_path)).give_back
    gate.chmod(0o755)
    assert output(gate, "version").strip() == version(machine)


def test_without_a_compiler_the_wheel_is_for_every_platform(unpacked: Path, tmp_path: Path) -> None:
    """The README's first command would fail on a machine without one."""
    wheel = build(tmp_path, "wheel", unpacked, {**os.environ, "CC": "/no/such/compiler"})
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {GATE, PAGES}.isdisjoint(archive.namelist())


@pytest.mark.parametrize(
    ("compiler", "is_there"),
    [pytest.param((*COMPILERS, "")[0], True, marks=COMPILER_ONLY), ("/no/such/compiler", False)],
)
def test_an_editable_install_compiles_where_it_can(
    compiler: str, is_there: bool, unpacked: Path, tmp_path: Path
) -> None:
    """A developer could start no server; or the README's second command would fail."""
    gate, pages = unpacked / "sandbox" / GATE, unpacked / "worker" / PAGES
    gate.unlink(missing_ok=True)
    pages.unlink(missing_ok=True)
    code = f"import hatchling.build; hatchling.build.build_editable({str(tmp_path)!r})"
    output(sys.executable, "-c", code, cwd=unpacked, env={**os.environ, "CC": compiler})
    [wheel] = tmp_path.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    assert gate.exists() is pages.exists() is is_there
    gate.unlink(missing_ok=True)
    pages.unlink(missing_ok=True)


def test_where_a_gate_is_required_a_wheel_without_one_is_an_error(unpacked: Path, tmp_path: Path) -> None:
    """A release could go out without it, and nobody would see."""
    environ = {**os.environ, "CC": "/no/such/compiler", "QUARTERDECK_GATE": "required"}
    made = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=unpacked, env=environ)
    assert made.returncode != 0
    assert "/no/such/compiler could not be run" in made.stderr
    assert not list(tmp_path.iterdir())
