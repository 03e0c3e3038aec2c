"""The package in a runner's command line: which it is, what is left to the server, and its version, rewritten alone."""

import re
import shlex
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quarterdeck.seals.request import (
    PackageIndex,
    PackageRequest,
    Unsealable,
    is_behind,
    pin_of,
    pinned,
    request_of,
    runner_of,
    unversioned,
)

NPM, PYPI = PackageIndex.NPM, PackageIndex.PYPI


def asked(line: str) -> PackageRequest | Unsealable | None:
    command, *args = shlex.split(line)
    return request_of(command, args)


def request(line: str) -> PackageRequest:
    found = asked(line)
    assert isinstance(found, PackageRequest)
    return found


@pytest.mark.parametrize(
    ("line", "index", "name", "spec", "rest"),
    [
        ("npx -y @scope/server@1.2 /data", NPM, "@scope/server", "1.2", {"args": ("/data",)}),
        ("/usr/bin/npx server", NPM, "server", "", {}),
        ("npx.cmd server@latest --flag", NPM, "server", "latest", {"args": ("--flag",)}),
        ("npx 'server@>=1 <2'", NPM, "server", ">=1 <2", {}),
        ("npx server -- --flag -y", NPM, "server", "", {"args": ("--", "--flag", "-y")}),
        ("npx --package=other -- run it", NPM, "other", "", {"program": "run", "args": ("it",)}),
        ("npx -p other@1 -p more run", NPM, "other", "1", {"program": "run", "beside": ("more",)}),
        ("npm exec --yes -- server --flag", NPM, "server", "", {"args": ("--flag",)}),
        ("npm exec server one -y -- --flag", NPM, "server", "", {"args": ("one", "--flag")}),
        ("npm x server", NPM, "server", "", {}),
        ("bunx server@1.0.0 x", NPM, "server", "1.0.0", {"args": ("x",)}),
        ("bun x server", NPM, "server", "", {}),
        ("pnpm dlx --package=other run", NPM, "other", "", {"program": "run"}),
        ("pnpx server", NPM, "server", "", {}),
        ("uvx mcp-server-time --local UTC", PYPI, "mcp-server-time", "", {"args": ("--local", "UTC")}),
        ("uvx --python 3.12 --with a,b>=1,<2 server==1.0", PYPI, "server", "==1.0", {"python": "3.12"}),
        ("uvx --from server[web,cli]>=2 run", PYPI, "server", ">=2", {"extras": ("cli", "web"), "program": "run"}),
        ("uvx server@latest", PYPI, "server", "latest", {}),
        ("uvx server@1.0", PYPI, "server", "==1.0", {}),
        ("uv tool run --with=more server", PYPI, "server", "", {"beside": ("more",)}),
        ("pipx run server==1.0 --flag", PYPI, "server", "==1.0", {"args": ("--flag",)}),
        ("pipx run --python 3.12 --spec 'server[cli] >= 2' run", PYPI, "server", ">=2", {"program": "run"}),
    ],
)
def test_runners_are_asked_for_packages(
    line: str, index: PackageIndex, name: str, spec: str, rest: dict[str, Any]
) -> None:
    """Another package or program would be started, or an argument of the server would be taken for the runner's."""
    found = request(line)
    assert (found.index, found.name, found.spec) == (index, name, spec)
    assert {field: getattr(found, field) for field in rest} == rest
    assert rest.get("args", ()) == found.args


@pytest.mark.parametrize(
    ("line", "why", "name"),
    [
        ("npx ./here", "a path", None),
        ("npx ../../etc", "a path", None),
        ("npx .hidden", "a path", None),
        ("npx a/../b", "a path", None),
        ("npx owner/name", "a repository", None),
        ("npx github:owner/name", "a repository", None),
        ("npx https://example.org/x.tgz", "a URL", None),
        ("npx server@npm:other@1.0.0", "an alias of npm's", "server"),
        ("npx server@file:../here", "a path", "server"),
        ("npx -p other ./run", None, None),
        ("npx -p server -p ./here run", "a path", "server"),
        ("npx --registry https://example.org server", "the option --registry", "server"),
        ("npx --no-install server", "the option --no-install", "server"),
        ("uvx --offline server", "the option --offline", "server"),
        ("npx -c 'server --flag'", "a command line that names no package", None),
        ("npx -p server", "a command line that names no program", "server"),
        ("npm exec server --flag", "the option --flag", "server"),
        ("npx", "a command line that names no package", None),
        ("npx -y", "a command line that names no package", None),
        ("npx -p", "a command line that names no package", None),
        ("bunx --bun server", "the option --bun", "server"),
        ("yarn dlx server", "the runner yarn dlx", None),
        ("uv run server.py", "the runner uv run", None),
        ("deno run server.ts", "the runner deno run", None),
        ("uvx", "a command line that names no package", None),
        ("uvx https://example.org/x.whl", "a URL", None),
        ("uvx server@https://example.org/x.whl", "a URL", "server"),
        ("uvx --from git+https://example.org/x.git server", "a repository", "server"),
        ("uvx --from ./here server", "a path", "server"),
        ("uvx --with-editable . server", "the option --with-editable", "server"),
        ("uvx --with ./here server", "a path", "server"),
        ("uvx --from 'server; python_version > \"3\"' server", "an environment marker", "server"),
        ("pipx run server.py", "a path", None),
        ("pipx run https://example.org/x.py", "a URL", None),
    ],
)
def test_what_cannot_be_sealed_says_why(line: str, why: str | None, name: str | None) -> None:
    """A stranger's package of the same name would be installed, or an option would be lost without a word."""
    found = asked(line)
    if why is None:
        assert isinstance(found, PackageRequest)  # the program of a package may have any name
        return
    assert isinstance(found, Unsealable)
    assert (found.why, found.request.name if found.request else None) == (why, name)


@pytest.mark.parametrize("line", ["node server.js", "python -m server", "/opt/venv/bin/server", "npm run x", "npm"])
def test_what_is_no_runner_asks_for_no_package(line: str) -> None:
    """A local program would be sealed as a package that only has its name."""
    assert asked(line) is None


@given(st.lists(st.text(alphabet="-@=[]<>.,/: pwcaz1_~;", max_size=9) | st.sampled_from(["--", "--from", "-p"])))
@example(["", "-p", "1", "-p", "1"])
def test_any_words_are_read_and_a_requests_words_ask_for_the_same(words: list[str]) -> None:
    """A start would fail on odd words, or two requests that differ would share one installation."""
    for runner in ("npx", "npm exec", "bunx", "pnpm dlx", "uvx", "uv tool run", "pipx run"):
        command, *before = runner.split()
        found = request_of(command, [*before, *words])
        assert found is not None
        pin_of(command, [*before, *words])
        if isinstance(found, PackageRequest):
            assert found.runner == runner
            same = request(found.words)
            assert msgspec.structs.replace(same, args=found.args, place=found.place) == found
            assert same.words == found.words


@pytest.mark.parametrize(
    ("line", "runner"),
    [
        *(("npx -y server", "npm"), ("/usr/bin/npx.cmd server", "npm"), ("npm exec server", "npm")),
        *(("uvx server", "uv"), ("uv tool run server", "uv"), ("uv run server.py", "uv")),
        *(("pipx run server", "pipx"), ("bunx server", "bun"), ("bun x server", "bun"), ("pnpm dlx server", "pnpm")),
        *(("npm install server", None), ("uv", None), ("node server.js", None), ("python -m server", None)),
    ],
)
def test_who_fetches_what_it_runs_is_known(line: str, runner: str | None) -> None:
    """A first start by the others would have no more time than a server that hangs."""
    command, *args = line.split()
    assert runner_of(command, args) == runner


def test_a_package_without_its_version_stays_in_its_place() -> None:
    """A server would lose its id, and so its home and its approval, with a new version."""
    words = ["-y", "--package=server@1.0.0", "run", "server@1.0.0"]
    found = pin_of("npx", words)
    assert found is not None
    assert unversioned(words, found) == ["-y", "--package=server", "run", "server@1.0.0"]


def pin(line: str) -> PackageRequest | None:
    command, *args = line.split()
    return pin_of(command, args)


@pytest.mark.parametrize(
    ("line", "index", "name", "version", "at_9"),
    [
        ("npx -y server", "npm", "server", "", "npx -y server@9.0.1"),
        ("npx -y server@1.2.3 /data", "npm", "server", "1.2.3", "npx -y server@9.0.1 /data"),
        ("npx -y @scope/server@1.2.3-beta.1", "npm", "@scope/server", "1.2.3-beta.1", "npx -y @scope/server@9.0.1"),
        ("npx -y @scope/server@latest", "npm", "@scope/server", "", "npx -y @scope/server@9.0.1"),
        ("npx @scope/server@^1.2.3", "npm", "@scope/server", "", "npx @scope/server@9.0.1"),
        ("npx server@1.2", "npm", "server", "", "npx server@9.0.1"),
        ("npx --package=server@1.0.0 -- run it", "npm", "server", "1.0.0", "npx --package=server@9.0.1 -- run it"),
        ("npx -p server run", "npm", "server", "", "npx -p server@9.0.1 run"),
        ("npm exec --yes -- server --flag", "npm", "server", "", "npm exec --yes -- server@9.0.1 --flag"),
        ("uvx server", "PyPI", "server", "", "uvx server==9.0.1"),
        ("uvx server==1.0 --utc", "PyPI", "server", "1.0", "uvx server==9.0.1 --utc"),
        ("uvx server@1.0", "PyPI", "server", "1.0", "uvx server@9.0.1"),
        ("uvx server@latest", "PyPI", "server", "", "uvx server@9.0.1"),
        ("uvx server>=1,<2", "PyPI", "server", "", "uvx server==9.0.1"),
        ("uvx server==1.*", "PyPI", "server", "", "uvx server==9.0.1"),
        ("uvx --python 3.12 --with extra server", "PyPI", "server", "", "uvx --python 3.12 --with extra server==9.0.1"),
        ("uvx --from server[cli,x]==1.0 run", "PyPI", "server", "1.0", "uvx --from server[cli,x]==9.0.1 run"),
        ("uvx --from=server run", "PyPI", "server", "", "uvx --from=server==9.0.1 run"),
        ("uv tool run server", "PyPI", "server", "", "uv tool run server==9.0.1"),
        ("pipx run server", "PyPI", "server", "", "pipx run server==9.0.1"),
        ("pipx run --spec server[a]~=1.0 run", "PyPI", "server", "", "pipx run --spec server[a]==9.0.1 run"),
        ("bunx --bun server@1.0.0", "npm", "server", "1.0.0", "bunx --bun server@9.0.1"),
        ("uvx --index-url https://e.org server", "PyPI", "server", "", "uvx --index-url https://e.org server==9.0.1"),
    ],
)
def test_a_version_is_read_and_written_where_it_stands(
    line: str, index: str, name: str, version: str, at_9: str
) -> None:
    """An upgrade would start another package, or lose an option."""
    found = pin(line)
    assert found is not None
    assert (found.index, found.name, found.version) == (index, name, version)
    command, *args = line.split()
    assert " ".join([command, *pinned(args, found, "9.0.1")]) == at_9


@pytest.mark.parametrize(
    "line",
    [
        *("node server.js", "python -m server", "/opt/venv/bin/server", "npx ./here", "npx server@file:../here"),
        *("npx server@npm:other@1.0.0", "npx server@github:owner/name", "npx owner/name@1.0.0"),
        "uvx --from git+https://example.org/x.git server",
        *("uvx --from ./here server", "uvx server@https://example.org/x.whl", "docker run --rm -i image:1.0", "bunx"),
        "npx",
    ],
)
def test_what_has_no_versions_is_not_pinned(line: str) -> None:
    """A place on the disk, or a URL, would be replaced by a stranger's package of that name."""
    assert pin(line) is None


VERSIONS = st.from_regex(
    r"(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})(-[a-z]{1,4}\.[0-9])?", fullmatch=True
)
NAMES = st.from_regex(r"(@[a-z]{1,8}/)?[a-z][a-z0-9-]{0,12}[a-z0-9]", fullmatch=True)


@given(NAMES, VERSIONS, VERSIONS, st.lists(st.from_regex(r"[a-z/][a-z0-9./@=]{0,9}", fullmatch=True), max_size=4))
def test_what_is_pinned_reads_back_and_leaves_the_rest(name: str, before: str, after: str, rest: list[str]) -> None:
    """Any other word of the command line would have changed."""
    for command, lead, spec in (
        ("npx", ["-y"], f"{name}@{before}"),
        ("uvx", [], f"{name.rpartition('/')[2]}=={before}"),
    ):
        args = [*lead, spec, *rest]
        found = pin_of(command, args)
        assert found is not None
        assert found.version == before
        changed = pinned(args, found, after)
        again = pin_of(command, changed)
        assert again is not None
        assert (again.name, again.version, again.place) == (found.name, after, found.place)
        assert [*changed[: found.place], *changed[found.place + 1 :]] == [*lead, *rest]


@given(st.text(max_size=20))
def test_only_a_version_is_ever_written(version: str) -> None:
    """An answer of a registry would put an option, or another package, into a row."""
    found = pin("npx -y server@1.0.0")
    assert found is not None
    if re.fullmatch(r"[0-9][0-9A-Za-z.+!_-]*", version):
        assert pinned(["-y", "server@1.0.0"], found, version) == ["-y", f"server@{version}"]
    else:
        with pytest.raises(ValueError, match="exact version"):
            pinned(["-y", "server@1.0.0"], found, version)


@pytest.mark.parametrize(
    ("version", "latest", "is_it"),
    [
        ("1.2.3", "1.2.4", True),
        ("1.2.3", "1.10.0", True),
        ("1.2.3", "1.2.3", False),
        ("2.0.0-beta.1", "1.9.0", False),
        ("2.0.0-beta.1", "2.0.0", True),
        ("1.0", "1.0.1", True),
        ("2025.8.21", "2025.11.3", True),
        ("1!1.0", "1!2.0", True),
    ],
)
def test_a_pin_is_behind_what_came_later(version: str, latest: str, is_it: bool) -> None:
    """A user would be sent back from a pre-release, or not be told of a newer version."""
    assert is_behind(version, latest) is is_it


@pytest.mark.parametrize(
    ("index", "one", "other", "is_it"),
    [
        (PackageIndex.PYPI, "Mcp_Server.Time", "mcp-server-time", True),
        (PackageIndex.PYPI, "mcp-server-time", "mcp-server-times", False),
        (PackageIndex.NPM, "server", "Server", False),
    ],
)
def test_a_package_is_known_by_its_indexs_rules(index: PackageIndex, one: str, other: str, is_it: bool) -> None:
    """Another package of npm would pass for the one that was named."""
    assert PackageRequest("", index, one, "").is_of(other) is is_it
