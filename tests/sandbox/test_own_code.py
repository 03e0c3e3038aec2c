"""Which files and folders hold our code."""

import os
import sys

import quarterdeck_sandbox
from quarterdeck_sandbox.own_code import own_code
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
