"""What the editors of JSON, TOML and YAML texts share."""

import json
import re

import pytest

from quarterdeck.config.load.jsonc import parse
from quarterdeck.config.load.text_edit import EditError, outside, verified, with_member, without_member

ROWS = {"servers": [{"name": "a", "x": 1}, {"name": "b"}], "other": {"deep": 1}}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("other", "deep"), {**ROWS, "other": {"deep": 9}}),
        (("new", "deep"), {**ROWS, "new": {"deep": 9}}),
        (("servers", "a"), {**ROWS, "servers": [9, {"name": "b"}]}),
        (("servers", "c"), {**ROWS, "servers": [{"name": "a", "x": 1}, {"name": "b"}, 9]}),
    ],
)
def test_a_member_is_put_in_its_place(path: tuple[str, ...], expected: object) -> None:
    """A change would be refused that is right, or let through where it is not."""
    before = json.dumps(ROWS)
    assert with_member(ROWS, path, 9) == expected
    assert json.dumps(ROWS) == before, "what was there is compared with the result"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("other", "deep"), {**ROWS, "other": {}}),
        (("servers", "a"), {**ROWS, "servers": [{"name": "b"}]}),
        (("servers", "c"), ROWS),
    ],
)
def test_a_member_is_taken_out(path: tuple[str, ...], expected: object) -> None:
    """Another server's row would be lost, or the right one stay."""
    assert without_member(ROWS, path) == expected


@pytest.mark.parametrize("text", ['{"a": 2}', "{", '{"a": "\ud800"}'])
def test_a_text_that_means_something_else_is_not_given_out(text: str) -> None:
    """A client's configuration would be damaged by an edit of ours."""
    with pytest.raises(EditError):
        verified(text, {"a": 1}, lambda changed: parse(changed, has_comments=False))


def test_what_begins_within_a_value_is_no_comment() -> None:
    """A secret with a `#` in it would be shown behind that."""
    text = "a = '#x' # y\nb = 1 # z"
    found = [match[0] for match in outside(re.compile(r"#[^\n]*"), text, [(4, 8), (17, 18)])]
    assert found == ["# y", "# z"]
