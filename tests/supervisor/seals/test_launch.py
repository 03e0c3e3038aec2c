"""How servers are started from their seals: node and Python themselves, with a runner's choice of program."""

import sys
from pathlib import Path

import pytest

from quarterdeck.seals.launch import LAUNCHER, launch_of
from quarterdeck.seals.manifest import Manifest, Program, SealError
from quarterdeck.seals.request import PackageIndex, PackageRequest
from quarterdeck.seals.store import Seal

TREE = Path("/seals/abc/tree")


def npm_seal(*programs: Program) -> Seal:
    manifest = Manifest(index=PackageIndex.NPM, name="server", version="1.0.0", words="", programs=programs)
    return Seal("abc", manifest, TREE.parent)


def npx(program: str = "", *args: str) -> PackageRequest:
    return PackageRequest("npx", PackageIndex.NPM, "server", "", program=program, args=args)


@pytest.fixture
def folder_with_node(tmp_path):
    node = tmp_path / "node"
    node.touch(mode=0o755)
    return str(tmp_path)


def test_node_starts_the_packages_program_with_its_options_and_the_rows_arguments(folder_with_node):
    """A server would start without its arguments, or by another node than the row's PATH has."""
    seal = npm_seal(Program("server", "run", "node_modules/.bin/run", ("node", "--no-warnings")))
    launch = launch_of(seal, npx("", "--flag", "/data"), folder_with_node)
    assert launch.command == f"{folder_with_node}/node"
    assert launch.args == ("--no-warnings", f"{TREE}/node_modules/.bin/run", "--flag", "/data")
    assert launch.read == (str(TREE),)
    assert launch.path == (f"{TREE}/node_modules/.bin",)


def test_a_program_of_another_kind_is_executed_itself():
    """A shell script or a binary would be given to node."""
    launch = launch_of(npm_seal(Program("server", "run", "node_modules/.bin/run")), npx("run", "x"), "")
    assert (launch.command, launch.args) == (f"{TREE}/node_modules/.bin/run", ("x",))


def test_a_missing_node_is_said_with_the_path_that_was_searched():
    """The server would end with a riddle."""
    with pytest.raises(SealError, match=r"node is not on the PATH \(/nowhere\)") as caught:
        launch_of(npm_seal(Program("server", "run", "x", ("node",))), npx(), "/nowhere")
    assert caught.value.code == "no_runner"


def test_a_package_without_the_program_says_which_it_has():
    """A user could not mend the row."""
    seal = npm_seal(Program("server", "a", "x"), Program("server", "b", "y"))
    for asked, named in (("", "server"), ("c", "c")):
        with pytest.raises(SealError, match=f"has no program {named}; it has a, b") as caught:
            launch_of(seal, npx(asked), "")
        assert caught.value.code == "not_found"


def python_seal(interpreter: str = sys.executable) -> Seal:
    manifest = Manifest(
        index=PackageIndex.PYPI,
        name="server",
        version="1.0",
        words="",
        programs=(Program("server", "run", "pkg.cli:app.main", ("python",)),),
        interpreter=interpreter,
        platform="linux x86_64 cpython-311",
    )
    return Seal("abc", manifest, TREE.parent)


def test_python_starts_the_scripts_function_from_the_packages_folder():
    """The server would start with the packages of the user's Python, or not at all."""
    asked = PackageRequest("uvx", PackageIndex.PYPI, "server", "", args=("--utc",))
    launch = launch_of(python_seal(), asked, "/nowhere")
    assert launch.command == sys.executable
    assert launch.args == ("-S", "-c", LAUNCHER, f"{TREE}/site", "pkg.cli:app.main", "run", "--utc")


def test_a_python_that_is_gone_is_said():
    """The server would end with a riddle after an upgrade of the system's Python."""
    asked = PackageRequest("uvx", PackageIndex.PYPI, "server", "")
    with pytest.raises(SealError, match=r"/gone/python, is gone") as caught:
        launch_of(python_seal("/gone/python"), asked, "")
    assert caught.value.code == "no_runner"
