"""What is shown of a row holds no secret that is written into it."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.config.secrets.masking import (
    MASK,
    literal_secrets,
    looks_secret,
    mask,
    mask_args,
    mask_row,
    mask_text,
    mask_value,
    secrets_of,
)
from quarterdeck_protocol.configs import SseServerConfig


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("s3cret", MASK),
        ("${TOKEN}", "${TOKEN}"),
        ("Bearer ${TOKEN}", f"{MASK}${{TOKEN}}"),
        ("${A}s3cret${B}", f"${{A}}{MASK}${{B}}"),
        ("${TOKEN:-s3cret}", f"${{TOKEN:-{MASK}}}"),
        ("${keyring:GITHUB}", "${keyring:GITHUB}"),
        ("${s3cret", MASK),
        ("", ""),
        (5, MASK),
        (None, None),
    ],
)
def test_of_a_secret_only_its_references_are_shown(written: object, shown: object) -> None:
    """`config show` in a bug report would publish a password, or hide which variable it comes from."""
    assert mask_value(written) == shown


def test_environment_headers_and_url_are_masked_and_the_rest_is_shown() -> None:
    """Who approves a server would not see its command, or everybody would see its password."""
    row = {
        "command": "npx",
        "env": {"A": "s3cret", "B": "${B}"},
        "headers": {"X": "s3cret"},
        "url": "https://me:s3cret@h/p?key=s3cret&q=${Q}#top",
        "args": ["--token", "s3cret"],
        "sandbox": {"read": ["/x"]},
    }
    assert mask_row(row) == {
        "command": "npx",
        "env": {"A": MASK, "B": "${B}"},
        "headers": {"X": MASK},
        "url": f"https://me:{MASK}@h/p?key={MASK}&q=${{Q}}#top",
        "args": ["--token", MASK],
        "sandbox": {"read": ["/x"]},
    }
    assert mask_row({"env": ["A=s3cret"], "headers": None}) == {"env": MASK, "headers": None}


@pytest.mark.parametrize(
    ("name", "value", "is_shown"),
    [
        ("MEMORY_FILE_PATH", "/home/me/memory.json", True),
        ("MEMORY_FILE_PATH", "~/memory.json", True),
        ("DATA_DIR", "./data", True),
        ("SSL_KEY_FILE", "/etc/ssl/private/me.pem", True),
        ("MEMORY_FILE_PATH", "memory.json", False),
        ("PASSWORD", "/home/me/memory.json", False),
        ("API_TOKEN", "/home/me/memory.json", False),
        ("DATA_DIR", "/srv/AKIAIOSFODNN7EXAMPLE/x", False),
        ("DATA_DIR", "/bPxRfiCYEXAMPLEKEYK7MDENGwJalrXUtnFEMI", False),
        ("HOOK_PATH", "/services/T02ABCDEF/B03GHIJKL/k8sJ2dP9xQ1mN4vR7tZ0wY3u", False),
        ("HOOK_PATH", "/wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", False),
        ("HOOK_PATH", "/hook?token=s3cret", False),
        ("DATA_DIR", "/srv/${KEY:-s3cret}", False),
    ],
)
def test_a_path_in_a_variable_is_shown_unless_it_may_be_a_secret(name: str, value: str, is_shown: bool) -> None:
    """A user could not see which file a server is given, or a secret that begins with a slash would be published."""
    shown = value if is_shown else MASK
    assert (mask_row({"env": {name: value}}) == {"env": {name: value}}) is is_shown
    assert MASK in str(mask_row({"headers": {name: value}}))
    text = json.dumps({"mcpServers": {"a": {"env": {name: value}}}})
    assert mask(text) == text.replace(json.dumps(value), json.dumps(shown, ensure_ascii=False))


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (["-y", "pkg", "/path"], ["-y", "pkg", "/path"]),
        (["--token", "s3cret", "x"], ["--token", MASK, "x"]),
        (["--api-key=s3cret"], [f"--api-key={MASK}"]),
        (["-e", "DB_PASSWORD=s3\ncret"], ["-e", f"DB_PASSWORD={MASK}"]),
        (["--token", "--verbose"], ["--token", "--verbose"]),
        (["--token", "${T}"], ["--token", "${T}"]),
        (["postgres://me:s3cret@h/db"], [f"postgres://me:{MASK}@h/db"]),
        ([5, None], [5, None]),
        (["--pin", 12345], ["--pin", MASK]),
    ],
)
def test_arguments_that_sound_secret_are_masked(written: list[object], shown: list[object]) -> None:
    """A token is given as an argument more often than anybody likes."""
    assert mask_args(written) == shown


def test_a_text_that_is_no_url_is_unchanged() -> None:
    """A path with a question mark would be shown wrong."""
    assert mask_text("what?a=b") == "what?a=b"


@given(st.dictionaries(st.text(max_size=5), st.text("abc${}:-", min_size=1, max_size=20)))
def test_no_word_outside_of_references_is_ever_shown(env: Mapping[str, str]) -> None:
    """Some spelling of a reference would let a secret through."""
    marked = {name: f"s3cret{value}s3cret" for name, value in env.items()}
    shown = mask_row({"env": marked})["env"]
    assert isinstance(shown, dict)
    # The first one is before every reference, so it is in none.
    assert not any(value.startswith("s3cret") for value in shown.values())
    assert all(value.startswith(MASK) for value in shown.values())


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
        *("args.2", "args.4", "env.API_KEY", "headers.Cookie", "headers.Authorization", "url"),
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


def test_the_secret_of_a_login_is_one_wherever_it_stands() -> None:
    """A machine's secret would be in logs, on screens, and in bug reports."""
    login = {"client_id": "ci", "client_secret": "hunter2"}
    row: dict[str, object] = {"url": "https://a.example/mcp", "auth": login}
    assert mask_row(row)["auth"] == {"client_id": "ci", "client_secret": MASK}
    assert mask_row({"auth": {"client_secret": "${keyring:CI}"}})["auth"] == {"client_secret": "${keyring:CI}"}
    config = SseServerConfig.model_validate({"id": "far", **row})
    assert "hunter2" in secrets_of(config)
    assert list(literal_secrets(row)) == ["auth.client_secret"]
    assert "hunter2" not in mask(json.dumps(row))


def test_arguments_that_the_user_gives_to_tools_are_masked() -> None:
    """What is fixed may be a password, written down where a person looks on."""
    row = {"arguments": {"login": {"user": "me", "key": "${keyring:KEY}", "n": {"default": 1}}}, "hide": ["x"]}
    given_ones = {"user": MASK, "key": "${keyring:KEY}", "n": MASK}
    assert mask_row(row) == {"arguments": {"login": given_ones}, "hide": ["x"]}


def test_a_proxys_password_is_withheld() -> None:
    """A fault that repeats what the proxy said would publish it."""
    config = SseServerConfig(id="s", url="http://h/", proxy="http://me:hunter2@proxy.example:8080")
    assert "hunter2" in secrets_of(config)
    assert "hunter2" not in repr(config)
    assert "hunter2" not in json.dumps(mask_row({"url": "http://h/", "proxy": config.proxy}))
