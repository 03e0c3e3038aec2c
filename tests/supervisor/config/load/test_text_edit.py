"""The check that an edited text means what was wanted; which text that is, the tests of each editor say."""

import pytest

from quarterdeck.config.load.jsonc import parse
from quarterdeck.config.load.text_edit import EditError, verified


@pytest.mark.parametrize("text", ['{"a": 2}', "{", '{"a": "\ud800"}'])
def test_a_text_that_means_something_else_is_not_given_out(text: str) -> None:
    """A client's configuration would be damaged by an edit of ours."""
    with pytest.raises(EditError):
        verified(text, {"a": 1}, lambda changed: parse(changed, has_comments=False))
