"""Known secrets are taken out of every text, however they are spelt there; ordinary words stay."""

import base64
import json
from urllib.parse import quote, quote_plus

import pytest

from quarterdeck_protocol.secrets import REDACTED, Redactor, secret_values

SECRET = 'p&ss "w\\rd/ü='


@pytest.mark.parametrize(
    "spelt",
    [
        SECRET,
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        base64.b64encode(SECRET.encode()).decode().rstrip("="),
    ],
)
def test_a_secret_is_found_in_each_spelling(spelt: str) -> None:
    """A key would be readable in a URL, or in a line of JSON."""
    assert spelt not in Redactor([SECRET]).clean_text(f"before {spelt} after")


def test_a_header_s_scheme_is_no_part_of_its_secret() -> None:
    """A token would be readable where the word before it is missing."""
    assert Redactor(["Bearer abcdef123"]).clean_text("x abcdef123 y") == f"x {REDACTED} y"


def test_short_secrets_are_taken_out_where_they_are_words() -> None:
    """Half of every message would be blotted out; or a PIN would be shown."""
    redactor = Redactor(["1234", "abc", "true"])
    assert redactor.clean_text("pin 1234, 12345 x1234 abc true") == f"pin {REDACTED}, 12345 x1234 abc true"


def test_a_line_of_a_key_is_taken_out_by_itself() -> None:
    """A server that writes its key line by line would publish it."""
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\n-----END PRIVATE KEY-----"
    assert "MIIEvQ" not in Redactor([key]).clean_text("line: MIIEvQIBADANBgkqhkiG9w0")


def test_what_utf_8_cannot_say_is_no_obstacle() -> None:
    """A file's name would end the log."""
    assert Redactor(["\ud800secret!"]).clean_text("a\ud800b") == "a\\ud800b"


def test_without_secrets_a_text_stays() -> None:
    """Every line would be copied for nothing."""
    assert Redactor([]).clean(b"anything") == b"anything"


def test_of_named_values_the_secret_ones_are_told() -> None:
    """A path or a word would be blotted out of messages; or a password with an innocent name would not."""
    values = {
        "HOME": "/home/me",
        "LEVEL": "debug",
        "PORT": "8080",
        "HOST": "db.example.com",
        "API_TOKEN": "/odd/token",
        "GREETING": "hunter2 hunter2!",
        "DATABASE": "postgres://u:pw123@h/db",
    }
    assert set(secret_values(values)) == {"/odd/token", "hunter2 hunter2!", "postgres://u:pw123@h/db", "pw123"}
