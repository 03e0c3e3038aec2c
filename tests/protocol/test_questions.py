"""What a client may be asked, by its own word."""

import pytest

from quarterdeck_protocol.questions import MAX_CAPABILITIES_BYTES, askable


@pytest.mark.parametrize(
    ("capabilities", "methods"),
    [
        (b"{}", set()),
        (b'{"roots":{},"x":1}', {"roots/list"}),
        (b'{"elicitation":{},"sampling":null}', {"elicitation/create", "sampling/createMessage"}),
        (b'{"roots":{},"x":"%b"}' % (b"y" * MAX_CAPABILITIES_BYTES), set()),
    ],
)
def test_a_client_may_be_asked_what_it_declared_in_few_words(capabilities: bytes, methods: set[str]) -> None:
    """It would be asked what it cannot answer; or megabytes be read for each question of a server."""
    assert askable(capabilities) == methods
