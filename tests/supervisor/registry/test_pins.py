"""The version of a package in a command line: found where it stands, and rewritten there alone."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.registry.pins import PackageIndex, Pin, is_behind, pin_of, pinned


def pin(line: str) -> Pin | None:
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
    assert Pin(index, one, "", one, 0).is_of(other) is is_it
