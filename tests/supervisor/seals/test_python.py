"""uv's and pip's words for seals: locks with hashes, clean installations, scripts, and what they say of failures."""

import json

import pytest

from quarterdeck.seals import python
from quarterdeck.seals.manifest import Program, SealError
from quarterdeck.seals.request import PackageIndex, PackageRequest

DIGEST = "5c099a001c6ca78260bda419f2e9b2aabee1adc4fe6ca56d8959871ad8da58a1"


def request(spec: str = "", **facts: object) -> PackageRequest:
    return PackageRequest("uvx", PackageIndex.PYPI, "Server", spec, **facts)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (request(), "Server\n"),
        (request("latest"), "Server\n"),
        (request("==1.2"), "Server==1.2\n"),
        (request(">=1,<2"), "Server>=1,<2\n"),
        (request("==1.0", extras=("a", "b"), beside=("httpx==1", "x")), "Server[a,b]==1.0\nhttpx==1\nx\n"),
    ],
)
def test_a_request_is_written_as_requirements(asked, text):
    """Another version than the row's would be sealed."""
    assert python.requirements_text(asked) == text


@pytest.mark.parametrize("beside", ["-r /etc/passwd", "x @ https://host/x.whl", "./x", "git+https://host/x", "x; y"])
def test_a_requirement_that_names_a_place_is_refused(beside):
    """A file of the user's would be read, or code that no index has."""
    with pytest.raises(SealError, match="not a package of an index"):
        python.requirements_text(request(beside=(beside,)))


def test_pips_report_becomes_a_lock_in_one_order():
    """The same resolution would be another lock each time."""
    installs = [
        {
            "metadata": {"name": name, "version": "1.0", "summary": "x"},
            "download_info": {"url": "https://user:hunter2@host/x", "archive_info": {"hashes": {"sha256": DIGEST}}},
        }
        for name in ("B_b", "a")
    ]
    lock = python.lock_of_report(json.dumps({"install": installs}).encode())
    assert lock == f"a==1.0 \\\n    --hash=sha256:{DIGEST}\nb-b==1.0 \\\n    --hash=sha256:{DIGEST}\n"
    assert python.locked_names(lock) == ("a", "b-b")


def test_a_package_without_a_hash_is_not_sealed():
    """A seal would hold code that no hash binds."""
    report = {"install": [{"metadata": {"name": "a", "version": "1"}, "download_info": {"vcs_info": {}}}]}
    with pytest.raises(SealError) as caught:
        python.lock_of_report(json.dumps(report).encode())
    assert caught.value.code == "unsealable"


@pytest.mark.parametrize(
    "line",
    [
        "a==1.0",
        "-r other.txt",
        "--index-url https://evil.example/simple",
        f"a @ https://evil.example/a.whl --hash=sha256:{DIGEST}",
        f"a==1.0 --hash=sha256:{DIGEST} --index-url=https://evil.example",
        f"./a==1.0 --hash=sha256:{DIGEST}",
        "a==1.0 --hash=md5:abc",
    ],
)
def test_a_lock_with_a_line_that_no_hash_binds_is_refused(line):
    """A lock of a repository could name another index, a file, or code without a hash."""
    with pytest.raises(SealError, match="without a version and a hash"):
        python.locked_names(f"b==1.0 --hash=sha256:{DIGEST}\n{line}\n")


def test_a_lock_may_hold_comments_markers_and_extras():
    """Locks of uv would be refused."""
    lock = (
        f"# made by uv\n\na[x]==1.0 ; sys_platform == 'linux' \\\n  --hash=sha256:{DIGEST} \\\n  --hash=sha256:{DIGEST}"
    )
    assert python.locked_names(lock) == ("a",)


def test_records_of_pip_and_uv_are_the_same_when_they_are_clean():
    """Two machines with different installers would have seals of different hashes."""
    pip = (
        "../../bin/run,sha256=a,9\n../../bin/tool,sha256=t,9\nx-1.dist-info/INSTALLER,sha256=b,4\n"
        "x-1.dist-info/METADATA,sha256=c,5\nx-1.dist-info/REQUESTED,,0\nx/a.py,sha256=d,1\nx/__pycache__/a.pyc,,\n"
    )
    uv = (
        "bin/run,sha256=e,9\nbin/tool,sha256=t,9\nx/a.py,sha256=d,1\nx-1.dist-info/METADATA,sha256=c,5\n"
        "x-1.dist-info/uv_cache.json,sha256=q,9\nx-1.dist-info/direct_url.json,sha256=q,9\n"
    )
    clean = "bin/tool,sha256=t,9\nx-1.dist-info/METADATA,sha256=c,5\nx/a.py,sha256=d,1\n"
    assert python.clean_record(pip, {"tool"}) == python.clean_record(uv, {"tool"}) == clean
    assert python.sealed_package(python.Distribution("Name: x", clean), ()).size == 15


@pytest.mark.parametrize(
    ("head", "is_kept"),
    [
        (b"\x7fELF", True),
        (b"#!/bin/sh\nexec x", True),
        (b"#!/usr/bin/env node\n", True),
        (b"#!/home/u/.venv/bin/python\nimport x", False),
        (b"#!/bin/sh\n'''exec' /home/u/long/bin/python \"$0\" \"$@\"\n' '''\n", False),
    ],
)
def test_a_script_that_names_the_place_of_an_interpreter_is_dropped(head, is_kept):
    """A tree would name the folder that it was installed in, and be another on each machine."""
    assert python.keeps_script(head) is is_kept


ENTRIES = """\
[console_scripts]
server = pkg.cli:main
server-admin=pkg.cli : app.run [extra]
broken = nothing

[other]
x = y:z
[gui_scripts]
win = pkg:gui
"""


def test_the_scripts_of_a_package_are_read_with_their_functions():
    """A server would not be found, or a plugin of another kind started as one."""
    found = python.programs_of(python.Distribution("Name: My_Server\nVersion: 1\n\nName: x", "", ENTRIES))
    assert [(each.package, each.name, each.target) for each in found] == [
        ("my-server", "server", "pkg.cli:main"),
        ("my-server", "server-admin", "pkg.cli:app.run"),
        ("my-server", "win", "pkg:gui"),
    ]


@pytest.mark.parametrize(
    ("scripts", "asked", "own"),
    [
        ({"a": ["a", "b"]}, "", "a"),
        ({"a": ["x"], "b": ["y"]}, "", "x"),
        ({"a": ["x", "y"]}, "", None),
        ({"a": ["x", "y"]}, "y", "y"),
        ({"a": ["A"], "b": ["a"]}, "", "A"),
        ({"a": ["x"], "b": ["y"]}, "y", "y"),
        ({"a": ["x"]}, "z", None),
        ({}, "", None),
    ],
)
def test_the_program_is_the_one_asked_for_else_the_packages_own(scripts, asked, own):
    """Another script than uvx would run would be started as the server."""
    programs = [Program(package, name, "m:f") for package, names in scripts.items() for name in names]
    found = python.own_program(programs, "a", asked)
    assert (found and found.name) == own


def test_a_package_is_known_by_its_files_and_says_what_was_built():
    """A rebuilt package of the same version would look unchanged."""
    metadata = "Name: My_Server\nVersion: 1.0\nLicense-Expression: MIT\nLicense: Other\n\nbody"
    one, other = (python.sealed_package(python.Distribution(metadata, record), {"my-server"}) for record in "ab")
    assert (one.name, one.version, one.license, one.script) == ("my-server", "1.0", "MIT", "built from source")
    assert one.integrity != other.integrity
    assert python.built_names("   Built my_server==1.0\n  Building wheel for Other (pyproject.toml)") == {
        "my-server",
        "other",
    }


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("error: Hash mismatch for `x==1`", "wrong_hash"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "wrong_hash"),
        ("error: Failed to fetch: `http://h/x/`\n Caused by: error sending request for url", "registry_away"),
        ("WARNING: Retrying: Connection refused\nERROR: No matching distribution found for x", "registry_away"),
        ("× No solution found\n╰─▶ Because x was not found in the package registry and you require x", "not_found"),
        ("Because there is no version of x==9 and you require x==9", "not_found"),
        ("ERROR: No matching distribution found for x==9", "not_found"),
        ("the current Python version (3.11.7) does not satisfy Python>=3.14", "other_platform"),
        ("Because x==1 has no wheels with a matching platform tag (e.g., `linux`)", "other_platform"),
        ("Because x==1 has no usable wheels and building from source is disabled", "needs_scripts"),
        ("error: x\n  cause: URL dependencies must be expressed as direct requirements", "unsealable"),
        ("OSError: [Errno 28] No space left on device", "no_space"),
        ("something else", "ended"),
    ],
)
def test_a_failure_of_an_installer_has_our_code_and_its_words(output, code):
    """A missing package and an index that is away would look the same."""
    error = python.error_of(output, "install x")
    assert error.code == code
    assert error.message.startswith("could not install x: ")


def test_the_python_that_a_package_needs_is_read_from_uvs_words():
    """A package for a newer Python would not be sealed though one is installed."""
    said = "Because the current Python version (3.11.7) does not satisfy Python>=3.13 and server depends on it"
    assert python.wanted_python(said) == ">=3.13"
    assert python.wanted_python("does not satisfy Python>=3.12,<3.14.") == ">=3.12,<3.14"
    assert python.wanted_python("something else") == ""
