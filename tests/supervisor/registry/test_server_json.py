"""What a registry answers: read where it is right, left out where it is not, and never believed."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.registry.server_json import (
    MAX_INPUTS,
    Entry,
    Page,
    RegistryFormatError,
    latest_of,
    matches,
    read_entry,
    read_file,
    read_page,
)

OFFICIAL = "io.modelcontextprotocol.registry/official"

SERVER = {
    "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
    "name": "io.github.example/files",
    "title": "Files",
    "description": "Reads files",
    "version": "1.0.2",
    "repository": {"url": "https://github.com/example/files", "source": "github"},
    "packages": [
        {
            "registryType": "npm",
            "identifier": "@example/files",
            "version": "1.0.2",
            "transport": {"type": "stdio"},
            "environmentVariables": [{"name": "KEY", "isRequired": True, "isSecret": True}],
        }
    ],
}


def listed(*servers: Any, cursor: str | None = None) -> bytes:
    return json.dumps({"servers": list(servers), "metadata": {"nextCursor": cursor, "count": len(servers)}}).encode()


def answered(server: Any, **official: Any) -> dict[str, Any]:
    return {"server": server, "_meta": {OFFICIAL: official or {"status": "active", "isLatest": True}}}


def test_a_list_is_read_with_its_cursor() -> None:
    """A user would see the first hundred servers alone."""
    page = read_page(listed(answered(SERVER), cursor="abc"))
    assert page.cursor == "abc"
    assert [entry.server.name for entry in page.entries] == ["io.github.example/files"]
    [package] = page.entries[0].server.packages
    assert (package.identifier, package.version, package.environment_variables[0].is_secret) == (
        "@example/files",
        "1.0.2",
        True,
    )


@pytest.mark.parametrize(
    "broken",
    [
        *(1, None, [], {"server": 1}, {"server": {"name": "no-namespace"}}, {"server": {"name": "a/b/../c"}}),
        *({"server": {"name": "a/\u202eb"}}, {"server": {"name": f"a/{'b' * 300}"}}),
        {"server": {**SERVER, "packages": [{"identifier": "x"}]}},
        {"server": {**SERVER, "packages": [{**SERVER["packages"][0]}] * (MAX_INPUTS + 1)}},  # type: ignore[index,dict-item]
        {"server": SERVER, "_meta": {OFFICIAL: "x"}},
    ],
)
def test_an_entry_that_is_none_costs_no_other(broken: Any) -> None:
    """One publisher's mistake would hide every server behind it."""
    page = read_page(listed(broken, answered(SERVER)))
    assert (len(page.entries), page.unread) == (1, 1)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"<html><body>Sign in</body></html>", b"[]", b"{}", b'{"servers": {}}', b'{"servers": "none"}'),
        *(b'{"servers": [', b"\xff\xfe", b'{"servers":' + b"[" * 100_000),
    ],
)
def test_what_is_no_list_is_refused_without_being_repeated(data: bytes) -> None:
    """A proxy's page would be taken for an empty registry, or be printed on the terminal."""
    with pytest.raises(RegistryFormatError) as raised:
        read_page(data)
    assert "Sign in" not in str(raised.value)


def test_null_for_no_servers_is_an_empty_list() -> None:
    """Go's registry answers so when nothing matches."""
    assert read_page(b'{"servers": null, "metadata": {"count": 0}}') == Page(())


def test_a_file_may_hold_a_list_or_one_server() -> None:
    """A user without a network would have to know which of the two a file must be."""
    assert len(read_file(listed(answered(SERVER), answered(SERVER))).entries) == 2
    assert read_file(json.dumps(SERVER).encode()).entries == (read_entry(json.dumps(answered(SERVER)).encode()),)
    for data, told in (
        (b"[1]", "^it is not a JSON object$"),
        (b"no", "^it is not JSON$"),
        (b'{"name": "x"}', "describe a server"),
    ):
        with pytest.raises(RegistryFormatError, match=told):
            read_file(data)


def test_the_latest_version_of_each_server_counts() -> None:
    """A user would be given an old version, since a list has them all."""
    entries = read_page(
        listed(
            answered({**SERVER, "version": "1.0.0"}, status="active", isLatest=False),
            answered({**SERVER, "version": "2.0.0"}, status="deprecated", isLatest=True),
            answered({**SERVER, "name": "a/other"}),
        )
    ).entries
    found = latest_of(entries)
    assert [(entry.server.name, entry.server.version, entry.status) for entry in found] == [
        ("io.github.example/files", "2.0.0", "deprecated"),
        ("a/other", "1.0.2", "active"),
    ]


def test_a_word_is_sought_in_names_and_words() -> None:
    """A user would have to know what a publisher called it."""
    server = read_page(listed(answered(SERVER))).entries[0].server
    assert all(matches(server, word) for word in ("FILES", "reads f", "example"))
    assert not matches(server, "mail")


@given(
    st.binary(max_size=300)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=9).map(
        lambda value: json.dumps({"servers": value}).encode()
    )
)
def test_no_answer_does_more_than_be_refused(data: bytes) -> None:
    """A hostile registry would end the command with a traceback."""
    for read in (read_page, read_file, read_entry):
        with suppress(RegistryFormatError):
            assert isinstance(read(data), Page | Entry)
