"""References in a configuration resolve, or say which one does not."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.config.load.project import ProjectBounds
from quarterdeck.config.load.variables import VariableError, Variables
from quarterdeck.config.secrets.store import MissingSecretError, SecretError

ENVIRON = {"NAME": "value", "EMPTY": "", "ODD(x86)": "odd", "TRICK": "${NAME} $${NAME}"}


def variables(base: Path = Path("/etc/qd")) -> Variables:
    return Variables(environ=ENVIRON, base=base, workspace=Path("/work space"), home=Path("/home/u"))


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("plain", "plain"),
        ("${NAME}", "value"),
        ("a${NAME}b${NAME}", "avaluebvalue"),
        ("${env:NAME}", "value"),
        ("${env:ODD(x86)}", "odd"),
        ("[${EMPTY}]", "[]"),
        ("${MISSING:-text}", "text"),
        ("${MISSING:-}", ""),
        ("${MISSING:-a:-b}", "a:-b"),
        ("${EMPTY:-text}", "text"),
        ("${NAME:-text}", "value"),
        ("${env:MISSING:-text}", "text"),
        ("${workspaceFolder}/x", "/work space/x"),
        ("${userHome}", "/home/u"),
        ("$${NAME}", "${NAME}"),
        ("$$${NAME}", "$${NAME}"),
        ("$${", "${"),
        ("$NAME $ {NAME} $", "$NAME $ {NAME} $"),
        ("${TRICK}", "${NAME} $${NAME}"),
    ],
)
def test_references_become_what_they_name(text: str, expanded: str) -> None:
    """A token or a path would reach the server unresolved, or a value would be expanded a second time."""
    assert variables().expand(text) == expanded


def test_without_a_project_its_folder_is_an_unset_variable() -> None:
    """A server would be given the home, or a place of ours, as the folder to work in."""
    bare = replace(variables(), workspace=None, places=set())
    with pytest.raises(
        VariableError, match=r"\$\{workspaceFolder\} has no value.*: start it in one, or write"
    ) as caught:
        bare.expand("${workspaceFolder}/x")
    assert caught.value.code == "unset_variable"
    assert bare.places == {"workspaceFolder"}
    assert (bare.expand("${workspaceFolder:-/d}"), variables().expand("${workspaceFolder:-/d}")) == (
        "/d",
        "/work space",
    )


@pytest.mark.parametrize(
    ("text", "message", "code"),
    [
        ("${MISSING}", "the variable 'MISSING' is not set", "unset_variable"),
        ("${NAME}${env:MISSING}", "the variable 'MISSING' is not set", "unset_variable"),
        ("${NAME", "'${' has no '}': write $${ for a plain ${", "config_invalid"),
        ("${}", "'' is not a variable's name: write $${ for a plain ${", "config_invalid"),
        ("${env:}", "'' is not a variable's name: write $${ for a plain ${", "config_invalid"),
        ("${a b}", "'a b' is not a variable's name: write $${ for a plain ${", "config_invalid"),
        ("${a b:-hunter2}", "'a b' is not a variable's name: write $${ for a plain ${", "config_invalid"),
        ("${A:-${NAME}}", "variables do not nest: write $${ for a plain ${", "config_invalid"),
        (
            "${input:token}",
            "'${input:token}' asks a person, which only an editor can: use ${env:NAME}",
            "config_invalid",
        ),
        ("${file:missing}", "the file 'missing' cannot be read: No such file or directory", "config_invalid"),
    ],
)
def test_a_reference_that_cannot_be_resolved_is_named(text: str, message: str, code: str) -> None:
    """A user would see a server fail with an empty token and no hint why."""
    with pytest.raises(VariableError) as caught:
        variables().expand(text)
    assert (str(caught.value), caught.value.code) == (message, code)


@pytest.mark.parametrize(
    ("content", "value"), [("s3cret\n", "s3cret"), ("s3cret\r\n", "s3cret"), ("a\nb\n\n", "a\nb\n")]
)
def test_a_secret_file_gives_its_content_without_the_last_newline(tmp_path: Path, content: str, value: str) -> None:
    """A token with a newline breaks the header that it is put into."""
    (tmp_path / "token").write_bytes(content.encode())
    (tmp_path / "token").chmod(0o600)
    assert variables(tmp_path).expand("Bearer ${file:token}") == f"Bearer {value}"


def test_a_secret_file_that_others_may_read_is_refused_without_showing_it(tmp_path: Path) -> None:
    """The message of a refusal would itself publish the secret."""
    (tmp_path / "token").write_text("s3cret")
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(VariableError, match=r"the file 'token' may be used by others \(mode 0644\)") as caught:
        variables(tmp_path).expand("${file:token}")
    assert "s3cret" not in str(caught.value)


def test_paths_start_at_the_files_directory_or_at_home() -> None:
    """The same file would mean different places, depending on where a client started us."""
    located = [str(variables().locate(text)) for text in ("a/b", "/a", "~", "~/a", "~a")]
    assert located == ["/etc/qd/a/b", "/a", "/home/u", "/home/u/a", "/etc/qd/~a"]


def test_an_env_file_is_read_as_dotenv_and_literally(tmp_path: Path) -> None:
    """Quotes, comments and `export` are part of every such file; a `$` in a password is no reference."""
    (tmp_path / ".env").write_text(
        "# comment\n\nA=1\nexport B = two words # note\nC='it''s'\nD=\"x\\ny\"\nE=${A}\nF=\nA=2\n".replace("''", "")
    )
    values = variables(tmp_path).read_env_file(".env", ".env")
    assert values == {"A": "2", "B": "two words", "C": "its", "D": "x\ny", "E": "${A}", "F": ""}


@pytest.mark.parametrize(("text", "line"), [("A=1\nB='open\n", 2), ("A=1\n\nexport LONE\n", 3), ("=x\n", 1)])
def test_a_bad_line_of_an_env_file_is_found(tmp_path: Path, text: str, line: int) -> None:
    """A variable would be missing, and nobody would say so."""
    (tmp_path / ".env").write_text(text)
    with pytest.raises(VariableError, match=rf"^'\.env' line {line}: not in the form NAME=value$"):
        variables(tmp_path).read_env_file(".env", ".env")


@given(st.text(alphabet="${}:-~ANME envfil\0\ud800é"))
def test_any_text_expands_or_says_why_not(text: str) -> None:
    """A stray exception would take the other servers of the file along."""
    with suppress(VariableError):
        assert isinstance(variables().expand(text), str)


@given(st.text())
def test_text_without_references_stays_as_it_is(text: str) -> None:
    """An argument that merely holds a dollar would be changed."""
    if "${" not in text:
        assert variables().expand(text) == text


def keyring(name: str) -> str:
    if name == "locked":
        raise SecretError("the keyring is locked")
    if name != "GH":
        raise MissingSecretError(f"there is no secret {name!r}")
    return "s3cret"


def test_a_secret_is_taken_from_where_it_is_kept() -> None:
    """A password would have to be written into a file that is shared."""
    places = replace(variables(), keyring=keyring)
    assert places.expand("Bearer ${keyring:GH}") == "Bearer s3cret"
    for name, code in (("GONE", "unset_variable"), ("locked", "config_invalid")):
        with pytest.raises(VariableError) as caught:
            places.expand(f"${{keyring:{name}}}")
        assert caught.value.code == code


def test_what_was_put_in_and_is_secret_is_known(tmp_path: Path) -> None:
    """A token that stands in the middle of an argument or a header would be readable in the log."""
    (tmp_path / "token").write_text("from-file\n")
    (tmp_path / "token").chmod(0o600)
    environ = {"NAME": "plain", "API_TOKEN": "from-environment"}
    places = Variables(environ, tmp_path, tmp_path, tmp_path, keyring=keyring)
    places.expand("${NAME} ${API_TOKEN} ${file:token} ${keyring:GH} ${NO_TOKEN:-default}")
    assert places.secrets == {"from-environment", "from-file", "s3cret"}
    assert "from-file" not in repr(places)


def test_a_projects_file_sees_only_the_variables_that_are_open_to_it() -> None:
    """Opening a repository would hand its program every token of the environment."""
    places = replace(variables(), bounds=ProjectBounds("/project", frozenset({"NAME"})))
    assert (
        places.expand("${NAME} ${env:NAME} ${EMPTY:-text} ${ODD:-text} ${userHome}") == "value value text text /home/u"
    )
    closed = replace(variables(), environ={"TOKEN": "s3cret"}, bounds=ProjectBounds("/project"))
    assert closed.expand("${TOKEN:-default}") == "default"
    with pytest.raises(VariableError, match=r"'TOKEN' is not open .*: list it in 'allow_project_env'") as caught:
        closed.expand("${TOKEN}")
    assert caught.value.code == "unset_variable"
    assert "s3cret" not in str(caught.value)


def test_a_projects_file_takes_no_value_from_another_file(tmp_path: Path) -> None:
    """A person would approve a row, and the file that it names would say something else tomorrow."""
    (tmp_path / "mine").write_text("A=value")
    (tmp_path / "mine").chmod(0o600)
    places = replace(variables(tmp_path), keyring=keyring, bounds=ProjectBounds(str(tmp_path.resolve())))
    with pytest.raises(VariableError, match="may not take values from other files"):
        places.expand("${file:mine}")
    with pytest.raises(VariableError, match="may not take values from other files"):
        places.read_env_file("mine", "mine")
    with pytest.raises(VariableError, match="may not use a secret of yours"):
        places.expand("${keyring:GH}")
