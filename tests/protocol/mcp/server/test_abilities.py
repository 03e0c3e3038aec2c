"""What a client can be asked: exactly what it declared, and nothing where that cannot be read."""

import pytest

from quarterdeck_protocol.mcp.server.client_requests import refusal
from quarterdeck_protocol.questions import Question

FORM = Question("s", "elicitation/create", b'{"message":"?"}')
URL = Question("s", "elicitation/create", b'{"mode":"url","url":"https://x"}')
SAMPLE = Question("s", "sampling/createMessage", b"{}")
ROOTS = Question("s", "roots/list", b"{}")


@pytest.mark.parametrize(
    ("capabilities", "question", "code"),
    [
        (b'{"elicitation":{}}', FORM, 0),
        (b'{"elicitation":{"form":{}}}', FORM, 0),
        (b'{"elicitation":{"url":{}}}', FORM, -32602),
        (b'{"elicitation":{}}', URL, -32602),
        (b'{"elicitation":{"url":{}}}', URL, 0),
        (b'{"elicitation":{"form":{},"url":{}}}', URL, 0),
        (b'{"sampling":{"tools":{}}}', SAMPLE, 0),
        (b'{"roots":{"listChanged":true}}', ROOTS, 0),
        (b"{}", FORM, -32601),
        (b"{}", SAMPLE, -32601),
        (b"{}", ROOTS, -32601),
        (b'{"elicitation":{},"sampling":{},"roots":{}}', Question("s", "anything/else", b"{}"), -32601),
        (b'{"elicitation":{}}', Question("s", "elicitation/create", b"[]"), 0),
        (b"[]", FORM, -32601),
        (b'{"elicitation":7}', FORM, -32601),
        (b"\xff", FORM, -32601),
        (b'{"roots":{},"x":"' + b"y" * 70_000 + b'"}', ROOTS, -32601),
    ],
)
def test_a_client_is_asked_what_it_says_that_it_can(capabilities: bytes, question: Question, code: int) -> None:
    """A question to a client that cannot take it would never be answered."""
    refused = refusal(capabilities, question)
    assert (refused.code if refused else 0) == code
