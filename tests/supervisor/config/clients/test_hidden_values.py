"""Secrets are seen by us, and not by who looks at the screen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.config.clients.hidden_values import literal_secrets, looks_secret, mask
from quarterdeck.config.secrets.masking import MASK

SECRET = "ghp_0123456789abcdefghij"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("API_KEY", "abcdef-ghi", True),
        ("Authorization", "Bearer abcdefgh", True),
        ("ANYTHING", SECRET, True),
        ("DATABASE_URL", "postgres://me:pass@host/db", True),
        ("url", "https://host/mcp?api_key=abc", True),
        ("Authorization", "Bearer ${TOKEN}", False),
        ("API_KEY", "${env:API_KEY}", False),
        ("MAX_TOKENS", "4096", False),
        ("USE_TOKEN", "true", False),
        ("API_KEY", "", False),
        ("API_KEY", 12, False),
        ("LOG_LEVEL", "debug-verbose", False),
        ("url", "https://host/mcp", False),
    ],
)
def test_a_secret_is_told_from_a_setting(name: str, value: object, expected: bool) -> None:
    """A user would not be warned of a token in plain text, or be warned of everything."""
    assert looks_secret(name, value) is expected


def test_the_places_of_secrets_are_named_and_not_their_values() -> None:
    """A warning that shows the token would be worse than none."""
    row = {
        "command": "docker",
        "args": ["run", "-e", f"GITHUB_TOKEN={SECRET}", "--api-key", "hunter2-hunter2", "--verbose"],
        "env": {"API_KEY": "abcdef-ghi", "PORT": "8080", "TOKEN": "${TOKEN}"},
        "headers": {"Cookie": "a=b", "Authorization": "Bearer abcdefgh"},
        "url": "https://me:pass@host/",
    }
    assert list(literal_secrets(row)) == [
        "args.2",
        "args.4",
        "env.API_KEY",
        "headers.Cookie",
        "headers.Authorization",
        "url",
    ]


def test_a_masked_text_shows_names_and_references_only() -> None:
    """A diff on a shared screen, or in a bug report, would give tokens away."""
    text = f"""{{
  "mcpServers": {{
    "a": {{
      "command": "npx", // its token: {SECRET}
      "args": ["--token", "hunter2-hunter2", "--key=x", "-y", "TOKEN={SECRET}"],
      "env": {{"HARMLESS": "plain", "PIN": 1234, "REF": "${{env:REF}}", "QUARTERDECK_STATE_DIR": "/s"}},
      /* "API_KEY": "old-one",
         more */
      "headers": {{"X": ["deep"]}}, "url": "https://me:pass@host/"
    }}
  }}
}}"""
    shown = mask(text)
    for secret in (SECRET, "hunter2", "plain", "1234", "old-one", "deep", "pass@"):
        assert secret not in shown
    for harmless in ('"npx"', '"-y"', '"${env:REF}"', '"HARMLESS"', '"/s"', "*/"):
        assert harmless in shown
    assert len(shown.splitlines()) == len(text.splitlines())


def test_a_text_without_secrets_is_shown_as_it_is() -> None:
    """A diff could not be compared with the file."""
    text = '{\n  // plain\n  "a": [1, true, null, -2.5e3, "x/y"], /* b */ "c": {"d": "e"}\n}\n'
    assert mask(text) == text


@given(st.text(st.sampled_from('{}[]",:/*\\\n "ab1'), max_size=60))
def test_anything_can_be_masked(text: str) -> None:
    """A broken file would end the command with a traceback in place of its diff."""
    assert len(mask(text).splitlines()) == len(text.splitlines())


def test_what_is_masked_says_so() -> None:
    """An empty value would look as if it had been lost."""
    assert mask('{"env": {"A": "b"}}') == f'{{"env": {{"A": "{MASK}"}}}}'
