"""npm's words for seals: the lock that is kept, the programs of packages, and what npm says of failures."""

import json

import pytest

from quarterdeck.seals import npm
from quarterdeck.seals.manifest import Program, SealError
from quarterdeck.seals.request import PackageIndex, PackageRequest

HASH = "sha512-Sk4NQd3GFY0WZWCzndwFMPwJhtD0y9qjsQ"


def lock(**packages: dict[str, object]) -> str:
    return json.dumps({"name": "sealed", "lockfileVersion": 3, "packages": {"": {}, **packages}})


def entry(**facts: object) -> dict[str, object]:
    return {"version": "1.0.0", "integrity": HASH, **facts}


def test_the_packages_of_a_lock_are_named_by_their_folder_unless_they_are_aliases():
    """A nested or aliased package would be listed under another name than its registry's."""
    found = npm.read_lock(
        lock(
            **{
                "node_modules/@scope/a": entry(license="MIT"),
                "node_modules/@scope/a/node_modules/b": entry(optional=True, os=["darwin"]),
                "node_modules/c": entry(name="real-c", hasInstallScript=True),
            }
        )
    )
    assert [(each.name, each.license, each.has_install_script) for each in found.values()] == [
        ("@scope/a", "MIT", False),
        ("b", "", False),
        ("real-c", "", True),
    ]


@pytest.mark.parametrize(
    ("packages", "code"),
    [
        ({"node_modules/a": {"version": "1.0.0", "resolved": "git+ssh://git@host/a.git#abc"}}, "unsealable"),
        ({"node_modules/a": {"resolved": "../a", "link": True}}, "unsealable"),
        ({"node_modules/../../a": entry()}, "hostile_tree"),
        ({"../a": entry()}, "hostile_tree"),
        ({"/etc/a": entry()}, "hostile_tree"),
        ({"node_modules/a/../../../b": entry()}, "hostile_tree"),
    ],
)
def test_a_lock_with_anything_but_archives_of_known_hash_within_the_tree_is_refused(packages, code):
    """A seal would hold code that no hash binds, or be installed outside of its tree."""
    with pytest.raises(SealError) as caught:
        npm.read_lock(lock(**packages))
    assert caught.value.code == code


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"lockfileVersion": 1, "packages": {}}', "[" * 100_000])
def test_a_text_that_is_no_lock_is_refused(text):
    """A broken lock would end in a traceback."""
    with pytest.raises(SealError, match="npm's lock"):
        npm.read_lock(text)


def test_a_kept_lock_names_no_registry_and_no_login():
    """A manifest would hold the password of the user's registry, and no other mirror would serve the lock."""
    url = "https://user:hunter2@mirror.example/a.tgz"
    kept = npm.settled_lock(lock(**{"node_modules/a": entry(resolved=url)}))
    assert "mirror.example" not in kept
    assert [(each.name, each.integrity) for each in npm.read_lock(kept).values()] == [("a", HASH)]
    assert npm.settled_lock(kept) == kept


def test_a_kept_lock_leaves_npm_nothing_to_look_up():
    """A package could not be installed again once its tag had moved on, or one of its platforms was not published."""
    beside = {"optionalDependencies": {"gone": "1", "b": "next"}, "dependencies": {"gone": "1", "c": "^1", "b": "x.x"}}
    kept = npm.settled_lock(
        lock(
            **{
                "node_modules/a": entry(**beside),
                "node_modules/@s/b": entry(version="4.0.0"),
                "node_modules/a/node_modules/b": entry(version="2.0.0", dependencies={"c": "latest"}),
                "node_modules/c": entry(version="3.0.0", optionalDependencies={"b": "*"}),
            }
        )
    )
    found = {name.rpartition("/")[2]: each for name, each in json.loads(kept)["packages"].items() if "@" not in name}
    assert found["a"]["optionalDependencies"] == {"b": "2.0.0"}
    assert found["a"]["dependencies"] == {"gone": "1", "c": "^1", "b": "x.x"}
    assert found["b"]["dependencies"] == {"c": "3.0.0"}
    assert "optionalDependencies" not in found["c"]
    assert npm.settled_lock(kept) == kept


def test_the_version_that_a_tag_stood_for_is_installed_and_a_range_still_binds_the_lock():
    """A lock would be refused once `latest` has moved on, or install another version than the row allows."""
    locked = npm.read_lock(lock(**{f"node_modules/{name}": entry(version="3.0.0") for name in ("a", "b")}))
    request = PackageRequest("npx", PackageIndex.NPM, "a", "latest", beside=("b@^1",))
    assert npm.dependencies_of(request, locked) == {"a": "3.0.0", "b": "^1"}


def test_further_packages_are_installed_beside_the_one_that_is_asked_for():
    """`npx -p a -p @s/b@2 program` would lack what it names second."""
    request = PackageRequest("npx", PackageIndex.NPM, "a", "^1", beside=("@s/b@2", "c", "@s/d"))
    assert npm.dependencies_of(request) == {"a": "^1", "@s/b": "2", "c": "*", "@s/d": "*"}


@pytest.mark.parametrize(
    ("file", "bins"),
    [
        ({"name": "@s/server", "bin": "./dist/index.js"}, {"server": "dist/index.js"}),
        ({"name": "a", "bin": {"x": "x.js", "y": "/y.js"}}, {"x": "x.js", "y": "y.js"}),
        ({"name": "a", "bin": {"x": "../../../../etc/passwd", "../../z": "z.js"}}, {"x": "etc/passwd", "z": "z.js"}),
        ({"name": "a", "bin": {"..": "x.js", "": "y.js", "n": 5}}, {}),
        ({"name": "a", "directories": {"bin": "./tools"}}, {"run": "tools/run"}),
        ({"name": "a", "directories": {"bin": "../../tools"}}, {"run": "tools/run"}),
        ({"name": "a", "bin": ["x"]}, {}),
        ({"name": "a"}, {}),
    ],
)
def test_the_programs_of_a_package_lie_within_it_however_they_are_written(file, bins):
    """A server would not be found, or a package could name a program of the machine as its own."""
    assert npm.bins_of(npm.read_package_file(json.dumps(file).encode()), ["run", ".hidden"]) == bins


@pytest.mark.parametrize(
    ("names", "package", "own"),
    [
        ({"other": "a"}, "server", "other"),
        ({"x": "same", "y": "same"}, "server", "x"),
        ({"server": "a", "y": "b"}, "@s/server", "server"),
        ({"x": "a", "y": "b"}, "server", None),
        ({}, "server", None),
    ],
)
def test_npx_runs_the_only_program_or_the_one_of_the_packages_name(names, package, own):
    """Another program than npx would run would be started as the server."""
    programs = [Program(package, name, target) for name, target in names.items()]
    found = npm.own_program([*programs, Program("b", "z", "z")], package)
    assert (found and found.name) == own


@pytest.mark.parametrize(
    ("head", "path", "words"),
    [
        (b"#!/usr/bin/env node\nx", "a.js", ("node",)),
        (b"#!/usr/bin/node --no-warnings\r\nx", "a", ("node", "--no-warnings")),
        (b"#!/usr/bin/env -S node --import tsx\nx", "a.js", ("node", "--import", "tsx")),
        (b"console.log(1)", "a.js", ("node",)),
        (b"#!/usr/bin/env bun\nx", "a.js", ()),
        (b"#!/bin/sh\nx", "a", ()),
        (b"#!\nx", "a", ()),
        (b"\x7fELF\x02", "bin/a", ()),
    ],
)
def test_node_starts_what_names_it_in_its_first_line_or_names_nothing(head, path, words):
    """A shell script would be given to node, or a node program executed without one."""
    assert npm.words_of_first_line(head, path) == words


def test_an_install_script_is_named_with_the_package():
    """A user would not learn which scripts were not run."""
    text = json.dumps({"name": "a", "version": "1", "scripts": {"install": "x", "postinstall": "y", "test": "z"}})
    locked = npm.LockedPackage("1", "a", HASH, has_install_script=True)
    assert npm.sealed_package(locked, npm.read_package_file(text.encode()), 5).script == "install, postinstall"
    built = npm.sealed_package(locked, npm.read_package_file(b'{"name": "a", "license": {"type": "MIT"}}'), 5)
    assert (built.script, built.license) == ("built from source", "MIT")


@pytest.mark.parametrize("data", [None, b"", b"{", b"[]", b'{"name": 5}', b"[" * 100_000, b"\xff\xfe"])
def test_a_broken_package_file_is_read_as_an_empty_one(data):
    """One package with a broken file would end a whole installation with a traceback."""
    assert npm.read_package_file(data) == npm.PackageFile()


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("npm error code E404\nnpm error 404 Not Found - GET https://r/x - Not found", "not_found"),
        ("npm ERR! code ETARGET\nnpm ERR! notarget No matching version found for x@9.", "not_found"),
        ("npm error code E401\nnpm error 401 Unauthorized", "not_found"),
        ("npm error code EINTEGRITY\nnpm error sha512-a integrity checksum failed", "wrong_hash"),
        ("npm error code ECONNREFUSED\nnpm error syscall connect\nnpm error connect refused", "registry_away"),
        ("npm error code E503\nnpm error 503 Service Unavailable", "registry_away"),
        ("npm error code EBADPLATFORM\nnpm error notsup Unsupported platform for x@1", "other_platform"),
        ("npm error code ENOSPC\nnpm error nospc ENOSPC: no space left on device", "no_space"),
        ("npm error code 128\nnpm error An unknown git error occurred", "unsealable"),
        ("npm error something new", "ended"),
        ("", "ended"),
    ],
)
def test_a_failure_of_npm_has_our_code_and_its_words(output, code):
    """A missing package and a registry that is away would look the same."""
    error = npm.error_of(output, "install x@1")
    assert error.code == code
    assert error.message.startswith("npm could not install x@1: ")
    assert "syscall" not in error.message
