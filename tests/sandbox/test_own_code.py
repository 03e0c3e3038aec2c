"""Which files and folders hold our code."""

import os
import sys
from pathlib import Path

import quarterdeck_sandbox
from quarterdeck_sandbox.own_code import own_code, own_path
from quarterdeck_sandbox.paths import is_within_any


def test_our_packages_our_environment_and_its_interpreter_are_among_them() -> None:
    """A command in a workspace that holds our environment would write its next sandbox itself."""
    code = own_code()
    for path in (quarterdeck_sandbox.__file__, sys.executable, os.__file__, f"{sys.prefix}/pyvenv.cfg"):
        assert path is not None
        assert is_within_any(path, code) or sys.prefix == sys.base_prefix
    for name in ("quarterdeck", "quarterdeck_worker", "quarterdeck_protocol"):
        assert any(os.path.basename(path) == name for path in code) or is_within_any(
            os.path.dirname(quarterdeck_sandbox.__file__), [sys.prefix]
        )


def test_folders_whose_pth_files_every_start_runs_are_among_them() -> None:
    """A `.pth` file would run our attacker's line at the next start."""
    import site

    assert all(is_within_any(folder, own_code()) for folder in site.getsitepackages())


def test_a_prefix_that_all_programs_share_is_not_ours() -> None:
    """A project below `/usr/local` could not be worked on where Python is installed there."""
    assert not {"/", "/usr", "/usr/local"} & set(own_code())


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
