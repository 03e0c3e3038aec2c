"""A file is read as the format that its name says."""

import pytest

from quarterdeck.config.clients.documents import editor_of
from quarterdeck.config.load.document import DocumentError

TEXTS = {"toml": '[a]\nb = "c"\n', "yaml": "a:\n  b: c\n", "json": '{"a": {"b": "c"}}'}


@pytest.mark.parametrize("written", TEXTS)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("config.toml", "toml"),
        ("config.yaml", "yaml"),
        ("/a/B.YML", "yaml"),
        ("mcp.json", "json"),
        ("settings.jsonc", "json"),
        (".claude.json", "json"),
        ("toml", "json"),
    ],
)
def test_the_end_of_a_name_says_the_format(name: str, expected: str, written: str) -> None:
    """A file would be read as another format, and refused."""
    if written == expected or (expected, written) == ("yaml", "json"):  # which is YAML
        assert editor_of(name).parse(TEXTS[written]) == {"a": {"b": "c"}}
    else:
        with pytest.raises(DocumentError):
            editor_of(name).parse(TEXTS[written])
