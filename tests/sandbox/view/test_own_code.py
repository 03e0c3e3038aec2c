"""Which files and folders hold our code."""

import os
import site
import sys
import sysconfig
from pathlib import Path

import pytest

import quarterdeck_sandbox
from quarterdeck_sandbox.policy.mounts import is_within_any
from quarterdeck_sandbox.view.own_code import own_code, own_path


def test_our_packages_our_environment_and_its_interpreter_are_among_them() -> None:
    """A command in a workspace that holds our environment would write its next sandbox itself."""
    code = own_code()
    for path in (quarterdeck_sandbox.__file__, sys.executable, os.__file__, f"{sys.prefix}/pyvenv.cfg"):
        assert path is not None
        assert is_within_any(path, code) or sys.prefix == sys.base_prefix
    for name in ("quarterdeck", "quarterdeck_worker", "quarterdeck_protocol", "quarterdeck_pytest"):
        assert any(os.path.basename(path) == name for path in code) or is_within_any(
            os.path.dirname(quarterdeck_sandbox.__file__), [sys.prefix]
        )


def test_folders_whose_pth_files_every_start_runs_are_among_them() -> None:
    """A `.pth` file would run our attacker's line at the next start."""
    assert all(is_within_any(folder, own_code()) for folder in site.getsitepackages())


def test_each_place_that_a_start_runs_code_of_counts_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of the user's, or a linked command, lie in no environment: one of them would be open."""
    expected = {str(tmp_path / name) for name in ("interpreter", "site", "user-site", "command", "library")}
    for name in ("prefix", "exec_prefix", "base_prefix", "base_exec_prefix"):
        expected.add(str(tmp_path / name))
        monkeypatch.setattr(sys, name, str(tmp_path / name))
    (tmp_path / "command").touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "interpreter"))
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "command")])
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path / "site")])
    monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(tmp_path / "user-site"))
    paths = dict.fromkeys(("stdlib", "platstdlib", "purelib", "platlib"), str(tmp_path / "library"))
    monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
    assert expected <= set(own_code.__wrapped__())


def test_a_prefix_that_all_programs_share_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project below `/usr/local` could not be worked on where Python is installed there."""
    assert not {"/", "/usr", "/usr/local"} & set(own_code())
    (tmp_path / "link").symlink_to("/usr/local")
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(sys, "base_exec_prefix", str(tmp_path / "link"))
    assert not {"/usr", "/usr/local", f"{tmp_path}/link"} & set(own_code.__wrapped__())


def test_a_project_on_the_path_is_not_imported_from(tmp_path: Path) -> None:
    """A command would write `watchfiles.py` into its workspace, and we would import it."""
    project, linked = tmp_path / "project", tmp_path / "linked"
    for folder in (project, linked):
        for name in ("quarterdeck", "anyio", "unheard_of"):
            (folder / name).mkdir(parents=True)
            (folder / name / "__init__.py").write_text("")
    ours = [folder for folder in sys.path if os.path.isabs(folder) and is_within_any(folder, own_code())]
    assert ours == own_path(ours, "/")
    for early in ("", ".", str(project)):
        assert own_path([early, *ours], str(project)) == ours
    assert own_path([*ours, str(linked)], "/") == ours


def test_a_dependency_that_is_linked_from_elsewhere_is(tmp_path: Path) -> None:
    """Who works on one of them could not start us."""
    (tmp_path / "anyio").mkdir()
    (tmp_path / "anyio/__init__.py").write_text("")
    standard = os.path.dirname(os.__file__)
    assert own_path(["/elsewhere", standard, str(tmp_path), "/other"], "/") == [standard, str(tmp_path)]


def test_who_starts_us_by_a_path_of_their_own_keeps_it(tmp_path: Path) -> None:
    """Our sources could not be run where they are."""
    sources, standard = str(Path(quarterdeck_sandbox.__file__).parents[1]), os.path.dirname(os.__file__)
    assert own_path([str(tmp_path), sources, standard], "/") == [str(tmp_path), sources, standard]
    assert own_path([str(tmp_path), sources, standard], str(tmp_path)) == [sources, standard]
