"""A file is read as what its name says."""

import pytest

from quarterdeck.config.clients.documents import Format, format_of, parse_as
from quarterdeck.config.load.document import DocumentError


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
def test_another_format_is_refused(format_: Format) -> None:
    """A file would be overwritten that is not what it seems."""
    with pytest.raises(DocumentError):
        parse_as(format_, "[[[", has_comments=True)
