"""How a server is started from its seal: `node` or Python itself, with the program that a runner would have run.

Nothing is started, and of the seal only the manifest is read.

Python is started without its own `site-packages`, as in an environment of its own: a small program adds the seal's
packages as a site directory, whose `.pth` files work, and calls the script's function.  Pythons that the server
starts in turn find the packages by PYTHONPATH, as they would in the environment that a runner makes.
"""

import os
from shutil import which
from typing import Final

import msgspec

from . import npm, python
from .manifest import Manifest, Program, SealError
from .request import PackageIndex, PackageRequest
from .store import Seal

LAUNCHER: Final = """\
import sys
place, target, name = sys.argv[1:4]
sys.path[:] = [path for path in sys.path if path]
import os, site
site.setquit()
site.sethelper()
site.addsitedir(place)
above = os.environ.get("PYTHONPATH")
os.environ["PYTHONPATH"] = place + os.pathsep + above if above else place
sys.argv[:] = [name, *sys.argv[4:]]
from importlib import import_module
module, _, function = target.partition(":")
run = import_module(module)
for part in function.split("."):
    run = getattr(run, part)
sys.exit(run())
"""
"""Started with the packages' folder, `module:function` and the script's name before the arguments."""


class SealedLaunch(msgspec.Struct, frozen=True):
    """How to start a server from its seal.

    Attributes:
        read: paths that it reads beside those of its row's policy.
        env: variables that are set unless its row sets them.
        path: folders that come first on its PATH.
    """

    command: str
    args: tuple[str, ...]
    read: tuple[str, ...]
    env: dict[str, str] = {}
    path: tuple[str, ...] = ()


def launch_of(seal: Seal, request: PackageRequest, search_path: str) -> SealedLaunch:
    """Return how to start what is asked for from its seal; `search_path` is the PATH of its row.

    Raise SealError: `no_runner` if Node or the Python is not there, `not_found` if the package has no such program.
    """
    manifest, tree = seal.manifest, seal.tree
    program = program_of(manifest, request)
    if manifest.index is PackageIndex.PYPI:
        if not os.access(manifest.interpreter, os.X_OK):
            raise SealError(
                "no_runner",
                f"the Python that {manifest.name} was sealed for, {manifest.interpreter}, is gone",
                f"seal it again: quarterdeck upgrade, or install that Python ({manifest.platform})",
            )
        site = str(tree / python.SITE)
        args = ("-S", "-c", LAUNCHER, site, program.target, program.name, *request.args)
        return SealedLaunch(manifest.interpreter, args, (str(tree),), path=(f"{site}/bin",))
    place = str(tree / program.target)
    path = (str(tree / "node_modules" / ".bin"),)
    if not program.words:
        return SealedLaunch(place, request.args, (str(tree),), path=path)
    command = which(program.words[0], path=search_path)
    if command is None:
        raise SealError(
            "no_runner",
            f"{program.words[0]} is not on the PATH ({search_path})",
            f"install it, or give the row a PATH in env that has it: {manifest.name} is started with it",
        )
    return SealedLaunch(command, (*program.words[1:], place, *request.args), (str(tree),), path=path)


def program_of(manifest: Manifest, request: PackageRequest) -> Program:
    """Return the program that the runner would start.  Raise SealError `not_found` if it could not tell."""
    programs, asked = manifest.programs, request.program
    if manifest.index is PackageIndex.PYPI:
        found = python.own_program(programs, request.name, asked)
    elif asked:
        found = next((program for program in programs if program.name == asked), None)
    else:
        found = npm.own_program(programs, request.name)
    if found is None:
        names = ", ".join(sorted({program.name for program in programs})[:20])
        raise SealError(
            "not_found",
            f"{manifest.name} {manifest.version} has no program {asked or request.name}; it has {names or 'none'}",
            "name one of them: npx --package PACKAGE PROGRAM, or uvx --from PACKAGE PROGRAM",
        )
    return found
