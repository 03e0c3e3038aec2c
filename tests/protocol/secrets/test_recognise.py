"""No secret passes, in whatever form people write it; and what says what is run stays readable."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.config.planted_secrets import BY_LOOKS, BY_PLACE, INNOCENT, NUMBERS, SECRET

from quarterdeck_protocol import secrets

MASK = "•"


def mask(_: str) -> str:
    return MASK


def test_the_table_is_as_long_as_what_was_once_planted() -> None:
    """A shortened table would prove less than it says."""
    assert len({*BY_PLACE, *BY_LOOKS, *NUMBERS}) >= 76


def test_a_secret_is_known_by_its_place() -> None:
    """A password would stand in the ledger for good."""
    for args in BY_PLACE:
        hidden = "\n".join(secrets.hide_args(args, mask))
        assert (SECRET in hidden, MASK in hidden) == (False, True), args
        assert any(SECRET in each for each in secrets.secrets_in_args(args)), args


@pytest.mark.parametrize("form", ["{}", "--opt={}", "x={}", "https://h/mcp/{}", "https://h/?q={}", '{{"a": "{}"}}'])
def test_a_secret_is_known_by_its_looks(form: str) -> None:
    """A token without a name before it would stand in the ledger for good."""
    held = [secret for secret in BY_LOOKS if not (form.startswith("http") and re.search(r"[/\s]", secret))]
    assert len(held) > len(BY_LOOKS) / 2, "of the others no URL holds one as it is"
    assert [secret for secret in held if secret in secrets.hide_args([form.format(secret)], mask)[0]] == []


@pytest.mark.parametrize("option", ["-H", "--header", "--headers", "--http-header", "--extra-header"])
def test_the_value_of_a_header_is_secret_whatever_it_is_called(option: str) -> None:
    """A key in a header of the service's own would be told from no text."""
    assert secrets.hide_args([option, "X-Custom: swordfish"], mask) == [option, f"X-Custom: {MASK}"]
    assert secrets.hide_args([f"{option}=X-Custom: swordfish"], mask) == [f"{option}=X-Custom: {MASK}"]


@pytest.mark.parametrize("option", ["-u", "--user", "-U", "--proxy-user", "--login"])
def test_what_follows_the_user_of_a_login_is_secret(option: str) -> None:
    """A password after a name and a colon would be told from no address."""
    assert secrets.hide_args([option, "me:swordfish"], mask) == [option, f"me:{MASK}"]
    assert secrets.hide_args([f"{option}=me:swordfish"], mask) == [f"{option}=me:{MASK}"]


@pytest.mark.parametrize(
    "program",
    [
        *("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mariadb", "mariadb-dump", "sshpass", "ldapsearch"),
        *("mongosh", "mongo", "mongodump", "influx", "clickhouse-client"),
    ],
)
def test_some_programs_take_a_password_by_a_short_option(program: str) -> None:
    """It would be taken for a port, a package or a project."""
    assert secrets.hide_args([f"/usr/bin/{program}", "-p", "swordfish"], mask)[-1] == MASK
    assert secrets.hide_args(["uvx", "-p", "swordfish"], mask)[-1] == "swordfish"


@pytest.mark.parametrize("scheme", ["Bearer", "Basic", "Token", "Digest", "ApiKey", "Bot", "Negotiate"])
def test_the_scheme_before_a_secret_stays(scheme: str) -> None:
    """A user could not see how a server logs in."""
    assert secrets.hide_value("AUTH", f"{scheme} swordfish", mask) == f"{scheme} {MASK}"


def test_a_password_may_be_a_number() -> None:
    """A PIN would be taken for a setting."""
    assert [args for args in NUMBERS if "94123456" in " ".join(secrets.hide_args(args, mask))] == []


@pytest.mark.parametrize(
    "args",
    [
        ("PWD=hunter2",),
        ("-e", "PWD=hunter2"),
        ("--env=PWD=hunter2",),
        ("Server=db;Uid=sa;PWD=hunter2;Encrypt=no",),
        ("--pwd", "hunter2"),
        ("PASSWD=hunter2",),
        ("-passwd=hunter2",),
    ],
)
def test_a_password_may_be_called_as_a_shell_calls_its_directory(args: tuple[str, ...]) -> None:
    """A database's password would stand in the ledger for good."""
    assert "hunter2" not in " ".join(secrets.hide_args(args, lambda _: "***"))


@pytest.mark.parametrize("value", ["/home/me/notes", "/", "C:\\Users\\me", "/work dir/x"])
def test_the_directory_of_a_shell_stays_readable(value: str) -> None:
    """A person could not see where a server runs, and every path would be taken out of the logs."""
    assert secrets.hide_args([f"PWD={value}"], lambda _: "***") == [f"PWD={value}"]
    assert secrets.hide_value("PWD", value, lambda _: "***") == value
    assert list(secrets.secret_values({"PWD": value})) == []


def test_what_says_what_is_run_stays_readable() -> None:
    """A user who approves a command line would see riddles."""
    shown = secrets.hide_args(INNOCENT, mask)
    assert [pair for pair in zip(INNOCENT, shown, strict=True) if pair[0] != pair[1]] == []


def test_a_reference_is_no_secret_and_its_default_may_be() -> None:
    """A user would not see which variable a token comes from; or would see the token."""
    assert secrets.hide_whole("Bearer ${T} x", mask) == f"{MASK}${{T}}{MASK}"
    assert secrets.hide_value("TOKEN", "Bearer ${T}", mask) == "Bearer ${T}"
    assert secrets.hide_value("TOKEN", "${T:-abcdef}", mask) == f"${{T:-{MASK}}}"
    assert (
        secrets.hide_text("${TOKEN:-abcdef} ${file:/run/x} $${x", mask) == f"${{TOKEN:-{MASK}}} ${{file:/run/x}} $${{x"
    )
    assert secrets.hide_value("TOKEN", "${abcdef", mask) == MASK


def test_what_is_hidden_already_stays_as_it_is() -> None:
    """A ledger that is cleaned twice would not know its own approvals again."""
    once = secrets.hide_args(["--token", "abc", "https://u:pw@h/?code=x"], lambda _: "(secret 0123456789ab)")
    assert secrets.hide_args(once, mask) == once


def test_what_stands_around_a_secret_stays() -> None:
    """A message would be empty where it could say something."""
    assert (
        secrets.hide_text("https://me:pw@h:81/p?key=abc&page=2#top", mask)
        == f"https://me:{MASK}@h:81/p?key={MASK}&page=2#top"
    )
    assert secrets.hide_text('{"a": 1, "token": "x y", "b": 2}', mask) == f'{{"a": 1, "token": "{MASK}", "b": 2}}'
    assert secrets.hide_text("Server=x;Password=a b;Db=y", mask) == f"Server=x;Password={MASK};Db=y"
    assert secrets.hide_args(["-H", "Authorization: Bearer abc"], mask) == ["-H", f"Authorization: Bearer {MASK}"]
    assert secrets.hide_args(["-H", "Accept: text/html"], mask) == ["-H", "Accept: text/html"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *(("API_KEY", "abcdef-ghi", True), ("MAX_TOKENS", "4096", False), ("USE_TOKEN", "true", False)),
        *(("PASSWORD", "4096", True), ("TOKEN", "${TOKEN}", False), ("HOME", "/home/me", False)),
        ("", "https://me:pw@h/", True),
    ],
)
def test_a_named_value_is_secret_or_not(name: str, value: str, expected: bool) -> None:
    """A setting would be called a secret, or a secret a setting."""
    assert secrets.holds_secret(name, value) is expected


ORDINARY = (
    *("/home/me/notes", "~/x", "./a b/c", "/usr/bin:/bin", "C:\\x", "true", "production", "us-east-1", "en_US.UTF-8"),
    *("db.internal:5432", "192.168.1.1", "https://api.example.com/v1", "8080", "0.5", "Europe/Berlin"),
    "me@example.com",
)


def test_ordinary_values_are_known() -> None:
    """Messages would read [redacted] where they name a path, a host or a word."""
    assert [value for value in ORDINARY if not secrets.is_ordinary(value)] == []


@pytest.mark.parametrize(
    "value",
    ["correcthorsebatterystaple", "hunter2-Zq9x1k", "https://u:pw@h/", "a sentence, (with) marks!", "ghp_0123456789"],
)
def test_other_values_are_not_ordinary(value: str) -> None:
    """A secret whose variable has an innocent name would be shown."""
    assert not secrets.is_ordinary(value)


@pytest.mark.parametrize("text", ["http://u:p@h", "u:p@h", "https://token@h", "a,u:p@h"])
def test_a_login_is_seen(text: str) -> None:
    """A proxy's password would reach every server."""
    assert secrets.has_login(text)


@pytest.mark.parametrize("text", ["http://h:80/", "localhost,127.0.0.1", "https://h/@scope/x", "/a/b"])
def test_what_is_no_login_is_none(text: str) -> None:
    """A server would not get the proxy that it needs."""
    assert not secrets.has_login(text)


PIECES = (
    *("token", "://a:", "?key", "a=", "--", "-:", 'key="', "-a:b", "a@", "a:", "http://a:", "x@y:", '{"key":'),
    "Zx8Q-",
)
MARKS = (
    *("-----BEGIN A-----", "${", "(secret ", "'--k ", "key={", "key=[", "${a:-", '\\"key\\":\\"', "https://h/"),
    "key: ",
)


ENDS = ("key: ", "--key ")


@pytest.mark.parametrize("chars", [7_500, pytest.param(60_000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("piece", [*PIECES, *MARKS, *ENDS])
def test_a_strangers_text_cannot_keep_us_busy(piece: str, chars: int) -> None:
    """A folder that a user merely enters would hang every command: the work is linear in the text."""
    text = (piece * chars)[:chars] + "@h"
    assert isinstance(secrets.hide_args([text, text[:300]], mask)[0], str)
    assert len(secrets.secrets_in(text)) <= len(text)


def test_a_text_that_no_command_takes_is_hidden_whole() -> None:
    """A secret could hide behind a megabyte."""
    assert secrets.hide_text("x " * 40_000, mask) == MASK


@given(st.lists(st.text(st.sampled_from("ab1-=:;/@?&$ {}\"'(),.\\\n"), max_size=30), max_size=4))
def test_whatever_is_given_is_hidden_in_place(args: list[str]) -> None:
    """A piece that is no secret would be lost, or an argument would."""
    assert secrets.hide_args(args, lambda secret: secret) == args
    for text in args:
        assert secrets.hide_text(text, lambda secret: secret) == text


@given(st.text("ab1-_=:;/@?&$ {}\"'", max_size=60))
def test_hiding_twice_hides_no_more(text: str) -> None:
    """A ledger that is cleaned again would get other hashes each time."""
    once = secrets.hide_text(text, lambda _: "(secret 0123456789ab)")
    places = [found.span() for found in re.finditer(r"\(secret 0123456789ab\)", once)]
    assert all(first[1] <= second[0] for first, second in pairwise(places))
