"""A file is read as what its name says."""

import pytest

from quarterdeck.config.clients.documents import Format, format_of, mask_as, parse_as, remove_row, set_row
from quarterdeck.config.load.document import DocumentError

TEXTS = {Format.JSON: '{"a": {"b": {"c": 1}}}', Format.TOML: "[a.b]\nc = 1\n", Format.YAML: "a:\n  b:\n    c: 1\n"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("config.toml", Format.TOML),
        ("config.yaml", Format.YAML),
        ("/a/B.YML", Format.YAML),
        ("mcp.json", Format.JSON),
        ("settings.jsonc", Format.JSON),
        (".claude.json", Format.JSON),
        ("toml", Format.JSON),
    ],
)
def test_the_end_of_a_name_says_the_format(name: str, expected: Format) -> None:
    """A file would be read as another format, and refused."""
    assert format_of(name) is expected


@pytest.mark.parametrize("format_", Format)
def test_every_format_is_read_changed_and_masked(format_: Format) -> None:
    """A client of one format could be linked, and not unlinked."""
    text = TEXTS[format_]
    assert parse_as(format_, text, has_comments=False) == {"a": {"b": {"c": 1}}}
    linked = set_row(format_, text, ("a", "q"), {"token": "hunter2x"}, has_comments=False)
    assert parse_as(format_, linked, has_comments=False)["a"] == {"b": {"c": 1}, "q": {"token": "hunter2x"}}
    assert "hunter2x" not in mask_as(format_, linked)
    assert parse_as(format_, remove_row(format_, linked, ("a", "q"), has_comments=False), has_comments=False) == {
        "a": {"b": {"c": 1}}
    }


@pytest.mark.parametrize("format_", Format)
def test_another_format_is_refused(format_: Format) -> None:
    """A file would be overwritten that is not what it seems."""
    with pytest.raises(DocumentError):
        parse_as(format_, "[[[", has_comments=True)
